#include "softdev/faults/fault_plan.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "base/printable.h"
#include "softdev/faults/fault_words.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::string_view kOccasions = "at N, from N, from N to N, every N, P%, always";
constexpr std::string_view kNameCharacters = "a name of at most 64 letters, digits and _ . + - : characters";

/// One word of the text, and its place in it.
struct Word {
  std::string_view text;
  std::size_t at = 0;
};

bool is_digit(char character) noexcept {
  return character >= '0' && character <= '9';
}

/// Reads a decimal number without sign. Returns false: it is none, or is not in the range.
bool read_number(std::string_view text, std::uint64_t least, std::uint64_t most, std::uint64_t& value) noexcept {
  if (text.empty() || !is_digit(text.front())) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most;
}

/// Reads "5%" or "0.25%", in millionths.
bool read_chance(std::string_view text, std::uint32_t& chance) noexcept {
  constexpr std::uint64_t kPerPercent = FaultWhen::kCertain / 100;
  constexpr std::size_t kDecimals = 4;
  if (!text.ends_with('%')) return false;
  text.remove_suffix(1);
  const std::size_t point = text.find('.');
  std::uint64_t whole = 0;
  if (!read_number(text.substr(0, point), 0, 100, whole)) return false;
  std::uint64_t parts = 0;
  if (point != std::string_view::npos) {
    const std::string_view decimals = text.substr(point + 1);
    if (decimals.size() > kDecimals || !read_number(decimals, 0, kPerPercent, parts)) return false;
    for (std::size_t i = decimals.size(); i < kDecimals; ++i) parts *= 10;
  }
  const std::uint64_t all = whole * kPerPercent + parts;
  chance = static_cast<std::uint32_t>(all);
  return all >= 1 && all <= FaultWhen::kCertain;
}

/// Reads "200ms".
bool read_time(std::string_view text, std::chrono::microseconds& time) noexcept {
  const auto digits = static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
  const std::uint64_t* const unit = meaning_of(kTimeWords, text.substr(digits));
  std::uint64_t count = 0;
  const auto most = static_cast<std::uint64_t>(FaultRule::kLongest.count());
  if (unit == nullptr || !read_number(text.substr(0, digits), 1, most / *unit, count)) return false;
  time = std::chrono::microseconds(static_cast<std::int64_t>(count * *unit));
  return true;
}

/// Reads "1ms..10ms", or one time.
bool read_times(std::string_view text, FaultRule& rule) noexcept {
  const std::size_t dots = text.find("..");
  if (!read_time(text.substr(0, dots), rule.shortest)) return false;
  rule.longest = rule.shortest;
  if (dots == std::string_view::npos) return true;
  return read_time(text.substr(dots + 2), rule.longest) && rule.shortest < rule.longest;
}

bool is_name(std::string_view text) noexcept {
  static constexpr std::string_view kOthers = "_.+-:";
  const auto allowed = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kOthers.find(c) != kOthers.npos;
  };
  return !text.empty() && text.size() <= FaultSelectors::kMaxName && std::ranges::all_of(text, allowed);
}

/// Reads an IPv4 address or a GID.
bool read_peer(std::string_view text, FaultSelectors& selectors) {
  constexpr std::size_t kLongestAddress = 45;
  if (text.size() > kLongestAddress) return false;
  const std::string address(text);
  std::array<std::uint8_t, 16> gid{};
  if (inet_pton(AF_INET, address.c_str(), gid.data() + 12) == 1) {
    gid[10] = gid[11] = 0xff;
  } else if (inet_pton(AF_INET6, address.c_str(), gid.data()) != 1) {
    return false;
  }
  selectors.peer = gid;
  return true;
}

std::string peer_text(const std::array<std::uint8_t, 16>& gid) {
  constexpr std::array<std::uint8_t, 12> kOfIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool is_ipv4 = std::equal(kOfIpv4.begin(), kOfIpv4.end(), gid.begin());
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(is_ipv4 ? AF_INET : AF_INET6, gid.data() + (is_ipv4 ? 12 : 0), text.data(), text.size());
  return text.data();
}

/// Reads the words of one rule, from left to right.
class RuleReader {
 public:
  RuleReader(std::size_t number, std::span<const Word> words, std::size_t end)
      : number_(number), words_(words), end_(end) {}

  /// Returns false: see error().
  bool read(FaultRule& rule) { return read_when(rule.when) && read_action(rule) && read_selectors(rule); }
  bool read_seed(std::uint64_t& seed) {
    (void)next();
    if (!has_next()) return ends_early("a number");
    if (!read_number(peek(), 0, UINT64_MAX, seed)) return refuse("a number up to 18446744073709551615");
    (void)next();
    return !has_next() || refuse("the end of the rule");
  }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  [[nodiscard]] bool has_next() const noexcept { return at_ < words_.size(); }
  [[nodiscard]] std::string_view peek() const noexcept { return has_next() ? words_[at_].text : std::string_view(); }
  std::string_view next() noexcept { return words_[at_++].text; }

  [[nodiscard]] std::string place(std::size_t at) const {
    return "rule " + std::to_string(number_) + ", character " + std::to_string(at + 1) + ": ";
  }
  bool ends_early(std::string_view possible) {
    error_ = place(end_) + "the rule ends too early; possible here: " + std::string(possible);
    return false;
  }
  /// The next word must not be here.
  bool refuse(std::string_view possible) { return refuse(words_[at_].text, words_[at_].at, possible); }
  bool refuse(std::string_view word, std::size_t at, std::string_view possible) {
    constexpr std::size_t kShown = 48;
    error_ = place(at) + "\"" + printable(word, kShown) + "\" cannot be used here; possible: " + std::string(possible);
    return false;
  }
  /// Reads a word of a table.
  template <typename Meaning, std::size_t kCount>
  bool read_word(const FaultWord<Meaning> (&words)[kCount], Meaning& meaning) {
    if (!has_next()) return ends_early(list_of(words));
    const Meaning* const found = meaning_of(words, peek());
    if (found == nullptr) return refuse(list_of(words));
    meaning = *found;
    (void)next();
    return true;
  }
  bool read_count(std::uint64_t most, std::uint64_t& count) {
    const std::string possible = "a number from 1 to " + std::to_string(most);
    if (!has_next()) return ends_early(possible);
    if (!read_number(peek(), 1, most, count)) return refuse(possible);
    (void)next();
    return true;
  }
  bool read_exactly(std::string_view word) {
    if (!has_next()) return ends_early(word);
    if (peek() != word) return refuse(word);
    (void)next();
    return true;
  }

  bool read_when(FaultWhen& when) {
    const std::string_view word = peek();
    if (word == "always") return (void)next(), true;
    if (word.ends_with('%')) {
      when.kind = FaultWhen::Kind::kChance;
      if (!read_chance(word, when.chance)) return refuse("0.0001% to 100%, with at most 4 decimals");
      return (void)next(), true;
    }
    const bool is_from = word == "from";
    if (!is_from && word != "at" && word != "every") {
      if (meaning_of(kActionWords, word) != nullptr) return true;
      return refuse(std::string(kOccasions) + ", or an action: " + list_of(kActionWords));
    }
    when.kind = is_from ? FaultWhen::Kind::kFrom : word == "at" ? FaultWhen::Kind::kAt : FaultWhen::Kind::kEvery;
    (void)next();
    if (!read_count(FaultWhen::kMaxCount, when.first)) return false;
    if (!is_from || peek() != "to") return true;
    (void)next();
    const std::size_t to = at_;
    if (!read_count(FaultWhen::kMaxCount, when.last)) return false;
    if (when.last >= when.first) return true;
    return refuse(words_[to].text, words_[to].at, "a number that is not less than the first one");
  }

  bool read_fault_time(FaultRule& rule) {
    constexpr std::string_view kTimes =
        "a time from 1us to 3600s, or a range such as 1ms..10ms; the units are us, ms, s";
    if (!has_next()) return ends_early(kTimes);
    if (!read_times(peek(), rule)) return refuse(kTimes);
    return (void)next(), true;
  }

  bool read_limited(std::uint32_t most, std::uint32_t& number) {
    std::uint64_t count = 0;
    if (!read_count(most, count)) return false;
    number = static_cast<std::uint32_t>(count);
    return true;
  }

  /// The error of a refused call may be omitted.
  bool read_call(FaultRule& rule) {
    if (!read_word(kCallWords, rule.call)) return false;
    rule.error = ENOMEM;
    const bool has_error = has_next() && peek().find('=') == std::string_view::npos;
    return !has_error || read_word(kErrorWords, rule.error);
  }

  bool read_action(FaultRule& rule) {
    if (!read_word(kActionWords, rule.action)) return false;
    switch (rule.action) {
      case FaultAction::kFail: return read_word(kStatusWords, rule.status);
      case FaultAction::kNotReady: return read_limited(FaultRule::kMaxTries, rule.number);
      case FaultAction::kDelay:
      case FaultAction::kSlow: return read_fault_time(rule);
      case FaultAction::kReorder: return read_limited(FaultRule::kMaxWindow, rule.number);
      case FaultAction::kLink: return read_exactly("down") && read_fault_time(rule);
      case FaultAction::kEvent: return read_word(kEventWords, rule.event);
      case FaultAction::kDeviceFatal: return read_exactly("fatal");
      case FaultAction::kRefuse: return read_call(rule);
      case FaultAction::kDie:
      case FaultAction::kFreeze:
        rule.at_peer = peek() == "peer";
        if (rule.at_peer) (void)next();
        return rule.action == FaultAction::kDie || read_fault_time(rule);
      case FaultAction::kLose:
      case FaultAction::kOverrun: break;
    }
    return true;
  }

  /// The names of the selectors that the action has.
  static std::vector<std::string_view> selectors_of(const FaultRule& rule) {
    std::vector<std::string_view> names{"device", "program", "rank"};
    if (rule.action == FaultAction::kRefuse) return names;
    names.insert(names.begin(), {"qp", "type"});
    if (rule.is_for_requests()) names.insert(names.begin(), {"opcode", "peer"});
    return names;
  }

  bool read_selectors(FaultRule& rule) {
    const std::vector<std::string_view> known = selectors_of(rule);
    std::vector<std::string_view> seen;
    while (has_next()) {
      const Word word = words_[at_];
      const std::size_t equals = word.text.find('=');
      const std::string_view name = word.text.substr(0, equals);
      const bool is_known = equals != std::string_view::npos && std::ranges::find(known, name) != known.end();
      if (!is_known || std::ranges::find(seen, name) != seen.end()) {
        std::string possible = "the end of the rule";
        for (const std::string_view one : known) possible += ", " + std::string(one) + "=";
        return refuse(word.text, word.at, possible + " (each once)");
      }
      seen.push_back(name);
      const Word value{word.text.substr(equals + 1), word.at + equals + 1};
      if (!read_selector(name, value, rule.selectors)) return false;
      (void)next();
    }
    return true;
  }

  bool read_selector(std::string_view name, const Word& value, FaultSelectors& selectors) {
    std::uint64_t number = 0;
    if (name == "qp") {
      if (!read_number(value.text, 1, UINT32_MAX, number)) return refuse(value.text, value.at, "a number from 1");
      selectors.queue_pair = static_cast<std::uint32_t>(number);
    } else if (name == "rank") {
      if (!read_number(value.text, 0, UINT32_MAX, number)) return refuse(value.text, value.at, "a number from 0");
      selectors.rank = static_cast<std::uint32_t>(number);
    } else if (name == "opcode") {
      return read_set(value, kOpcodeWords, [&](ibv_wr_opcode one) { selectors.opcodes |= fault_opcode_bit(one); });
    } else if (name == "type") {
      return read_set(value, kTransportWords, [&](std::uint8_t one) { selectors.transports |= one; });
    } else if (name == "peer") {
      if (!read_peer(value.text, selectors))
        return refuse(value.text, value.at, "an IPv4 address, an IPv6 address or a GID");
    } else {
      if (!is_name(value.text)) return refuse(value.text, value.at, kNameCharacters);
      (name == "device" ? selectors.device : selectors.program) = value.text;
    }
    return true;
  }

  /// Reads "WORD,WORD".
  template <typename Meaning, std::size_t kCount, typename Add>
  bool read_set(const Word& value, const FaultWord<Meaning> (&words)[kCount], Add add) {
    for (std::size_t from = 0;;) {
      const std::size_t comma = std::min(value.text.find(',', from), value.text.size());
      const std::string_view word = value.text.substr(from, comma - from);
      const Meaning* const found = meaning_of(words, word);
      if (found == nullptr) return refuse(word, value.at + from, list_of(words));
      add(*found);
      if (comma == value.text.size()) return true;
      from = comma + 1;
    }
  }

  const std::size_t number_;
  const std::span<const Word> words_;
  const std::size_t end_;
  std::size_t at_ = 0;
  std::string error_;
};

/// The words of `text`, which begins at `start` of the whole text.
std::vector<Word> words_of(std::string_view text, std::size_t start) {
  constexpr std::string_view kSpaces = " \t\r";
  std::vector<Word> words;
  for (std::size_t at = 0;;) {
    at = text.find_first_not_of(kSpaces, at);
    if (at == std::string_view::npos) return words;
    const std::size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    words.push_back({text.substr(at, end - at), start + at});
    at = end;
  }
}

Error invalid_plan(std::string text) {
  return make_error(std::make_error_code(std::errc::invalid_argument), std::move(text));
}

/// Collects the rules of a text.
class PlanReader {
 public:
  /// Reads the text of one rule. Returns an error text; empty: none.
  std::string add(std::string_view text, std::size_t start) {
    const std::vector<Word> words = words_of(text, start);
    if (words.empty()) return {};
    RuleReader reader(++number_, words, start + text.size());
    if (words.front().text == "seed") {
      if (plan_.seed) return "rule " + std::to_string(number_) + ": the plan already has a seed";
      return reader.read_seed(plan_.seed.emplace()) ? "" : reader.error();
    }
    if (plan_.rules.size() == FaultPlan::kMaxRules) {
      return "the plan has more than " + std::to_string(FaultPlan::kMaxRules) + " rules";
    }
    return reader.read(plan_.rules.emplace_back()) ? "" : reader.error();
  }
  [[nodiscard]] FaultPlan take() noexcept { return std::move(plan_); }

 private:
  FaultPlan plan_;
  std::size_t number_ = 0;
};

std::string time_text(std::chrono::microseconds time) {
  const auto count = static_cast<std::uint64_t>(time.count());
  for (const auto& unit : kTimeWords) {
    if (count % unit.meaning == 0) return std::to_string(count / unit.meaning) + std::string(unit.word);
  }
  return {};
}

std::string times_text(const FaultRule& rule) {
  const std::string shortest = time_text(rule.shortest);
  return rule.longest == rule.shortest ? shortest : shortest + ".." + time_text(rule.longest);
}

std::string chance_text(std::uint32_t chance) {
  constexpr std::uint32_t kPerPercent = FaultWhen::kCertain / 100;
  std::string text = std::to_string(chance / kPerPercent);
  if (chance % kPerPercent != 0) {
    std::string decimals = std::to_string(kPerPercent + chance % kPerPercent).substr(1);
    while (decimals.ends_with('0')) decimals.pop_back();
    text += "." + decimals;
  }
  return text + "% ";
}

std::string when_text(const FaultWhen& when) {
  switch (when.kind) {
    case FaultWhen::Kind::kAlways: return "";
    case FaultWhen::Kind::kAt: return "at " + std::to_string(when.first) + " ";
    case FaultWhen::Kind::kEvery: return "every " + std::to_string(when.first) + " ";
    case FaultWhen::Kind::kChance: return chance_text(when.chance);
    case FaultWhen::Kind::kFrom: break;
  }
  const std::string end = when.last == 0 ? "" : " to " + std::to_string(when.last);
  return "from " + std::to_string(when.first) + end + " ";
}

std::string argument_text(const FaultRule& rule) {
  const std::string peer = rule.at_peer ? " peer" : "";
  switch (rule.action) {
    case FaultAction::kFail: return " " + std::string(word_of(kStatusWords, rule.status));
    case FaultAction::kNotReady:
    case FaultAction::kReorder: return " " + std::to_string(rule.number);
    case FaultAction::kDelay:
    case FaultAction::kSlow: return " " + times_text(rule);
    case FaultAction::kLink: return " down " + times_text(rule);
    case FaultAction::kEvent: return " " + std::string(word_of(kEventWords, rule.event));
    case FaultAction::kDeviceFatal: return " fatal";
    case FaultAction::kDie: return peer;
    case FaultAction::kFreeze: return peer + " " + times_text(rule);
    case FaultAction::kRefuse:
      return " " + std::string(word_of(kCallWords, rule.call)) + " " + std::string(word_of(kErrorWords, rule.error));
    case FaultAction::kLose:
    case FaultAction::kOverrun: break;
  }
  return "";
}

/// The words of the members of a set, "WORD,WORD".
template <typename Meaning, std::size_t kCount, typename IsIn>
std::string set_text(const FaultWord<Meaning> (&words)[kCount], IsIn is_in) {
  std::string text;
  for (const auto& one : words) {
    if (is_in(one.meaning)) text += (text.empty() ? "" : ",") + std::string(one.word);
  }
  return text;
}

std::string selectors_text(const FaultSelectors& s) {
  std::string text;
  if (s.queue_pair != 0) text += " qp=" + std::to_string(s.queue_pair);
  if (s.opcodes != 0) {
    const auto is_in = [&s](ibv_wr_opcode one) { return (s.opcodes & fault_opcode_bit(one)) != 0; };
    text += " opcode=" + set_text(kOpcodeWords, is_in);
  }
  if (s.transports != 0) {
    text += " type=" + set_text(kTransportWords, [&s](std::uint8_t one) { return (s.transports & one) != 0; });
  }
  if (s.peer) text += " peer=" + peer_text(*s.peer);
  if (!s.device.empty()) text += " device=" + s.device;
  if (!s.program.empty()) text += " program=" + s.program;
  if (s.rank) text += " rank=" + std::to_string(*s.rank);
  return text;
}

}  // namespace

std::uint32_t fault_opcode_bit(ibv_wr_opcode opcode) noexcept {
  std::uint32_t bit = 1;
  for (const auto& one : kOpcodeWords) {
    if (one.meaning == opcode) return bit;
    bit <<= 1;
  }
  return 0;
}

Result<FaultPlan> parse_fault_plan(std::string_view text) {
  if (text.size() > FaultPlan::kMaxText) {
    return invalid_plan("the plan has more than " + std::to_string(FaultPlan::kMaxText) + " characters");
  }
  PlanReader reader;
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t line_end = std::min(text.find('\n', line), text.size());
    const std::size_t end = std::min(text.find('#', line), line_end);
    for (std::size_t start = line; start < end;) {
      const std::size_t rule_end = std::min(text.find(';', start), end);
      if (std::string error = reader.add(text.substr(start, rule_end - start), start); !error.empty()) {
        return invalid_plan(std::move(error));
      }
      start = rule_end + 1;
    }
    line = line_end + 1;
  }
  return reader.take();
}

std::string to_text(const FaultRule& rule) {
  return when_text(rule.when) + std::string(word_of(kActionWords, rule.action)) + argument_text(rule) +
         selectors_text(rule.selectors);
}

std::string to_text(const FaultPlan& plan) {
  std::string text;
  if (plan.seed) text = "seed " + std::to_string(*plan.seed);
  for (const FaultRule& rule : plan.rules) text += (text.empty() ? "" : "; ") + to_text(rule);
  return text;
}

}  // namespace rdmacomm::softdev
