#include "rdma_copy/client.h"

#include <span>
#include <string>
#include <vector>

#include "rdma_copy/frames.h"
#include "rdma_copy/sink.h"
#include "rdma_copy/source.h"
#include "rdmacomm/session.h"
#include "support/peer_loss.h"

namespace rdmacomm::copying {
namespace {

class CopyHooks final : public SessionHooks {
 public:
  explicit CopyHooks(const ClientOptions& options) : options_(options) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& /*peer*/) override {
    options_.modes.apply(hca);
    hca.channels = {programs::with_flags(stream_options().channel(kChannel), options_.connection.adapter)};
    hca.private_data = identification();
    return {};
  }

 private:
  const ClientOptions& options_;
};

/// Sends the job to the server.
Status say(RDMAStream& stream, const Job& job, const std::vector<std::string>& paths, Work& work) {
  FrameWriter writer(stream, &work);
  if (Status said = writer.put(FrameKind::kJob, job.encode()); !said.ok()) return said;
  for (const std::string& path : paths) {
    if (Status said = writer.put(FrameKind::kPath, std::as_bytes(std::span(path))); !said.ok()) return said;
  }
  return writer.flush();
}

Status copy(const ClientOptions& options, const EndPoint& endpoint, RDMAStream& stream, const Events& events,
            Counts& counts) {
  const auto watch = Watch::start(endpoint, stream, options.timeout);
  if (!watch) return watch.error();
  Work& work = (*watch)->work();
  const bool push = options.direction == Direction::kPush;
  const auto sources = static_cast<std::uint32_t>(options.sources.size());
  const Job job{.direction = options.direction, .options = options.copy, .sources = sources};
  const Status said = say(stream, job, push ? std::vector{options.destination} : options.sources, work);
  if (!said.ok()) return said;
  const Place place = Place::everywhere();
  if (push) return run_source(stream, place, options.sources, options.copy, events, counts, work);
  FrameReader reader(stream, &work);
  const Destination destination{
      .path = options.destination, .sources = sources, .names = options.sources, .mask = options.mask};
  return run_sink(stream, reader, place, destination, options.copy, events, counts, work);
}

}  // namespace

Status run_client(const ClientOptions& options, const Events& events, Counts& counts) {
  const ClientSession session(options.connection.session, std::make_shared<CopyHooks>(options));
  const auto endpoint = session.connect();
  if (!endpoint) return endpoint.error();
  if (Status identified = check_identification(endpoint->peer_private_data()); !identified.ok()) return identified;
  const auto soon = Deadline::after(options.connection.session.tcp.handshake_timeout);
  auto stream = RDMAStream::open(*endpoint, endpoint->channel(kChannel), stream_options(), soon);
  if (!stream) return programs::explained(*endpoint, stream.status());
  return programs::explained(*endpoint, copy(options, *endpoint, *stream, events, counts));
}

}  // namespace rdmacomm::copying
