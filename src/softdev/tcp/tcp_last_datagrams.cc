#include "softdev/tcp/tcp_last_datagrams.h"

#include <utility>

namespace rdmacomm::softdev {

void TcpLastDatagrams::add(std::list<TcpDatagrams>&& senders) {
  const Clock::time_point give_up_at = Clock::now() + kTime;
  for (TcpDatagrams& sender : senders) waiting_.push_back({std::move(sender), give_up_at});
}

void TcpLastDatagrams::advance() {
  if (waiting_.empty()) return;
  const Clock::time_point now = Clock::now();
  std::erase_if(waiting_, [now](Waiting& one) {
    one.sender.advance();
    return !one.sender.has_unsent() || now >= one.give_up_at;
  });
}

}  // namespace rdmacomm::softdev
