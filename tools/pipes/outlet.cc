#include "pipes/outlet.h"

#include <utility>

namespace rdmacomm::pipes {

Outlet::Outlet(EndPoint endpoint, RDMAStream stream, Failed failed)
    : endpoint_(std::move(endpoint)), stream_(std::move(stream)), failed_(std::move(failed)) {}

Status Outlet::conclude(const Total& total) {
  if (Status told = endpoint_.send_message(total.encode(), Deadline::never()); !told.ok()) {
    const Status why = why_ended();
    return why.ok() ? told : why;
  }
  if (Status finished = stream_.finish(Deadline::never()); !finished.ok()) return finished;
  const auto message = endpoint_.receive_message(Deadline::never());
  if (!message) return message.error();
  const auto verdict = Verdict::decode(*message);
  if (!verdict) return verdict.error();
  if (!verdict->failure) return {};
  return make_error(Errc::kAborted, "receiver " + endpoint_.peer() + " reports: " + *verdict->failure);
}

Status Outlet::why_ended() {
  const auto next = stream_.next(Deadline::after({}));
  if (!next && next.code() != Errc::kTimeout) return next.error();
  return endpoint_.status();
}

}  // namespace rdmacomm::pipes
