#include "support/command_line.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

DEFINE_int32(test_number, 1, "of command_line_test.cc");
DEFINE_uint32(test_count, 1, "of command_line_test.cc");
DEFINE_string(test_text, "", "of command_line_test.cc");
DEFINE_bool(test_switch, false, "of command_line_test.cc");

namespace rdmacomm::programs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Restores all flags at the end, and has a directory for flag files.
class CommandLine : public testing::Test {
 protected:
  CommandLine() : folder_(testing::TempDir() + "command_line." + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~CommandLine() override {
    std::filesystem::remove_all(folder_);
    ::unsetenv("FLAGS_test_number");
    ::unsetenv("FLAGS_flagfile");
  }

  static Result<std::vector<std::string>> take(std::vector<std::string> words) {
    words.insert(words.begin(), "/bin/this_program");
    return set_flags(words, {{'s', "--test_switch"}, {'q', "--notest_switch"}});
  }
  static std::string error(std::vector<std::string> words) {
    const auto taken = take(std::move(words));
    return taken ? "ok" : taken.error().context;
  }
  std::string file(const std::string& text, const std::string& name = "flags") const {
    const std::string path = folder_ + '/' + name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  gflags::FlagSaver saver_;
  const std::string folder_;
};

TEST_F(CommandLine, SetsFlagsAndReturnsTheOtherWords) {
  const auto words =
      take({"a", "--test-number=7", "-", "-test_text", "-x", "--test_count", "3", "-s", "--", "--b", "--"});
  ASSERT_TRUE(words.has_value()) << words.error().message();
  EXPECT_THAT(*words, ElementsAre("a", "-", "--b", "--"));
  EXPECT_EQ(FLAGS_test_number, 7);
  EXPECT_EQ(FLAGS_test_count, 3U);
  EXPECT_EQ(FLAGS_test_text, "-x");
  EXPECT_TRUE(FLAGS_test_switch);
  EXPECT_FALSE(gflags::GetCommandLineFlagInfoOrDie("test_number").is_default);
  EXPECT_EQ(error({"--notest-switch"}), "ok");
  EXPECT_FALSE(FLAGS_test_switch);
  EXPECT_EQ(error({"--test_switch=yes", "--test_text="}), "ok");
  EXPECT_TRUE(FLAGS_test_switch);
  EXPECT_EQ(FLAGS_test_text, "");
  EXPECT_EQ(error({"-sq"}), "ok");
  EXPECT_FALSE(FLAGS_test_switch);
}

TEST_F(CommandLine, ReportsEachErrorInTheSameForm) {
  EXPECT_EQ(error({"--test-size=4"}), "there is no option \"--test-size\"; see --help");
  EXPECT_EQ(error({"-x"}), "there is no option \"-x\"; see --help");
  EXPECT_EQ(error({"--not"}), "there is no option \"--not\"; see --help");
  EXPECT_EQ(error({"--test-number"}), "--test-number needs a value; see --help");
  EXPECT_EQ(error({"--test-number=x"}),
            "--test-number=x: this must be a whole number from -2147483648 to 2147483647; see --help");
  EXPECT_THAT(error({"--test_count", "-1"}), HasSubstr("--test_count=-1: this must be a whole number from 0"));
  EXPECT_THAT(error({"--test_switch=2"}), HasSubstr("true or false"));
  EXPECT_THAT(error({"--notest_switch=true"}), HasSubstr("takes no value"));
  EXPECT_THAT(error({"--notest_number"}), HasSubstr("on or off"));
}

TEST_F(CommandLine, FlagFilesAreReplacedByTheirLines) {
  const std::string path = file("# a comment\r\n\n  --test_number=5\r\n-test-text=two words\n-s");
  EXPECT_EQ(error({"--test_number=4", "--flagfile", path}), "ok");
  EXPECT_EQ(FLAGS_test_number, 5);
  EXPECT_EQ(FLAGS_test_text, "two words");
  EXPECT_TRUE(FLAGS_test_switch);
  EXPECT_EQ(error({"--flagfile=" + path, "--test_number=6"}), "ok");
  EXPECT_EQ(FLAGS_test_number, 6) << "the later one counts";
  const std::string other = file("--flagfile=" + path + "\n--test_count=9\n", "other");
  EXPECT_EQ(error({"--flagfile=" + other}), "ok");
  EXPECT_EQ(FLAGS_test_number, 5);
  EXPECT_EQ(FLAGS_test_count, 9U);
}

TEST_F(CommandLine, AProgramNameLimitsTheLinesThatFollow) {
  EXPECT_EQ(
      error({"--flagfile=" + file("other_*\n--test_number=2\nother\nthis_* x\n--test_count=3\nx\n--test_number=4\n")}),
      "ok");
  EXPECT_EQ(FLAGS_test_number, 1);
  EXPECT_EQ(FLAGS_test_count, 3U);
}

TEST_F(CommandLine, ALineOfAFlagFileIsCheckedLikeAnArgument) {
  const auto error_of = [this](const std::string& text) { return error({"--flagfile=" + file(text)}); };
  const auto line = [this](int number) {
    return file("", "x").substr(0, file("", "x").size() - 1) + "flags line " + std::to_string(number) + ": ";
  };
  EXPECT_EQ(error_of("\n--test_size=4\n"), line(2) + "there is no option \"--test_size\"; see --help");
  EXPECT_EQ(error_of("--test_number 4\n"), line(1) + "there is no option \"--test_number 4\"; see --help");
  EXPECT_EQ(error_of("test_number=4\n--test_count=2\n"),
            line(1) + "\"test_number=4\" is neither an option, which begins with --, nor a list of program names");
  EXPECT_THAT(error_of("\xEF\xBB\xBF--test_number=4\n"), HasSubstr("is neither an option"));
  EXPECT_EQ(error_of("--test_number\n4\n"), line(1) + "--test_number needs a value; see --help");
  EXPECT_THAT(error_of("--test_number=x"), HasSubstr(line(1) + "--test_number=x: this must be"));
  EXPECT_THAT(error_of("--flagfile=/nowhere/f"), HasSubstr(line(1) + "cannot read the flag file /nowhere/f"));
  EXPECT_THAT(error_of(std::string("--test_text=a\0b", 15)), HasSubstr("not a flag file"));
  EXPECT_THAT(error({"--flagfile=/"}), HasSubstr("cannot read the flag file /"));
  EXPECT_THAT(error({"--flagfile=/dev/zero"}), HasSubstr("cannot read the flag file /dev/zero"));
  EXPECT_THAT(error({"--flagfile=a,,b"}), HasSubstr("a name is empty"));
}

TEST_F(CommandLine, FilesAndVariablesThatNameThemselvesAreRefused) {
  const std::string path = file("");
  EXPECT_THAT(error({"--flagfile=" + file("--flagfile=" + path + '\n')}), HasSubstr("flag files include each other"));
  ::setenv("FLAGS_flagfile", file("--fromenv=flagfile").c_str(), 1);
  EXPECT_THAT(error({"--fromenv=flagfile"}), HasSubstr("flag files include each other"));
}

TEST_F(CommandLine, TheEnvironmentIsCheckedLikeArguments) {
  EXPECT_EQ(error({"--fromenv=test_number"}), "--fromenv=test_number: FLAGS_test_number is not set in the environment");
  EXPECT_EQ(error({"--tryfromenv=test_number"}), "ok");
  ::setenv("FLAGS_test_number", "12", 1);
  EXPECT_EQ(error({"--tryfromenv=test-number"}), "ok");
  EXPECT_EQ(FLAGS_test_number, 12);
  ::setenv("FLAGS_test_number", "x", 1);
  EXPECT_THAT(error({"--fromenv=test_count,test_number"}), HasSubstr("FLAGS_test_count is not set"));
  EXPECT_THAT(error({"--tryfromenv=test_count,test_number"}),
              HasSubstr("the environment variable FLAGS_test_number: --test_number=x: this must be a whole number"));
  EXPECT_THAT(error({"--tryfromenv=nothing"}), HasSubstr("there is no option \"--nothing\""));
}

TEST_F(CommandLine, UnknownFlagsInUndefokAreIgnored) {
  const std::string path = file("--nonewer\n--newest=3\n");
  EXPECT_EQ(error({"--newest=1", "--flagfile=" + path, "--undefok=newest,newer"}), "ok");
  EXPECT_THAT(error({"--undefok=newest", "--flagfile=" + path}), HasSubstr("there is no option \"--nonewer\""));
}

}  // namespace
}  // namespace rdmacomm::programs
