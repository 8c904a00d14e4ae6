// A pair of processes that use librpma as its manual describes: the server registers memory, the client writes to it,
// flushes, reads it back and stores 8 bytes atomically. Both compare the bytes.
//
// usage: rpma_transfer server|client ADDRESS PORT
#include <librpma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 1 << 20, kLine = 4096, kWord = kBytes, kAll = kBytes + kLine };

/// The private data with which the server accepts a connection.
struct Offer {
  uint8_t length;
  uint8_t descriptor[55];
};

static void check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
  exit(1);
}
#define CHECK(call) check(call, #call)

static unsigned char byte_at(size_t i) {
  return (unsigned char)(i * 31 + (i >> 8) * 7 + 5);
}

static const char kWordBytes[8] = "8 bytes";

static void compare(const unsigned char* bytes, const char* whose) {
  for (size_t i = 0; i < kBytes; ++i) {
    if (bytes[i] == byte_at(i)) continue;
    fprintf(stderr, "%s: byte %zu is %u\n", whose, i, bytes[i]);
    exit(1);
  }
  if (memcmp(bytes + kWord, kWordBytes, sizeof(kWordBytes)) == 0) return;
  fprintf(stderr, "%s: the atomic write is missing\n", whose);
  exit(1);
}

static unsigned char* memory(void) {
  unsigned char* bytes = aligned_alloc(kLine, kAll);
  if (bytes == NULL) exit(1);
  memset(bytes, 0, kAll);
  return bytes;
}

static void wait_for(struct rpma_conn* connection, enum rpma_conn_event wanted) {
  enum rpma_conn_event event = RPMA_CONN_UNDEFINED;
  CHECK(rpma_conn_next_event(connection, &event));
  if (event == wanted) return;
  fprintf(stderr, "%s instead of %s\n", rpma_utils_conn_event_2str(event), rpma_utils_conn_event_2str(wanted));
  exit(1);
}

static void wait_for_completion(struct rpma_conn* connection, const void* request) {
  struct rpma_cq* queue = NULL;
  struct ibv_wc completion;
  CHECK(rpma_conn_get_cq(connection, &queue));
  CHECK(rpma_cq_wait(queue));
  CHECK(rpma_cq_get_wc(queue, 1, &completion, NULL));
  if (completion.status == IBV_WC_SUCCESS && completion.wr_id == (uintptr_t)request) return;
  fprintf(stderr, "completion: %s\n", ibv_wc_status_str(completion.status));
  exit(1);
}

static void serve(struct rpma_peer* peer, const char* address, const char* port) {
  unsigned char* bytes = memory();
  struct rpma_mr_local* region = NULL;
  struct rpma_ep* listener = NULL;
  struct rpma_conn_req* request = NULL;
  struct rpma_conn* connection = NULL;
  struct Offer offer = {0};
  size_t length = 0;
  CHECK(rpma_mr_reg(peer, bytes, kAll,
                    RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &region));
  CHECK(rpma_mr_get_descriptor_size(region, &length));
  if (length > sizeof(offer.descriptor)) exit(1);
  offer.length = (uint8_t)length;
  CHECK(rpma_mr_get_descriptor(region, offer.descriptor));
  CHECK(rpma_ep_listen(peer, address, port, &listener));
  CHECK(rpma_ep_next_conn_req(listener, NULL, &request));
  struct rpma_conn_private_data data = {&offer, sizeof(offer)};
  CHECK(rpma_conn_req_connect(&request, &data, &connection));
  wait_for(connection, RPMA_CONN_ESTABLISHED);
  wait_for(connection, RPMA_CONN_CLOSED);
  compare(bytes, "server");
  CHECK(rpma_conn_disconnect(connection));
  CHECK(rpma_conn_delete(&connection));
  CHECK(rpma_ep_shutdown(&listener));
  CHECK(rpma_mr_dereg(&region));
  free(bytes);
}

static void transfer(struct rpma_peer* peer, const char* address, const char* port) {
  unsigned char* bytes = memory();
  unsigned char* read_back = memory();
  struct rpma_mr_local* from = NULL;
  struct rpma_mr_local* to = NULL;
  struct rpma_mr_remote* remote = NULL;
  struct rpma_conn_req* request = NULL;
  struct rpma_conn* connection = NULL;
  struct rpma_conn_private_data data = {NULL, 0};
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = byte_at(i);
  CHECK(rpma_mr_reg(peer, bytes, kAll, RPMA_MR_USAGE_WRITE_SRC, &from));
  CHECK(rpma_mr_reg(peer, read_back, kAll, RPMA_MR_USAGE_READ_DST, &to));
  CHECK(rpma_conn_req_new(peer, address, port, NULL, &request));
  CHECK(rpma_conn_req_connect(&request, NULL, &connection));
  wait_for(connection, RPMA_CONN_ESTABLISHED);
  CHECK(rpma_conn_get_private_data(connection, &data));
  const struct Offer* offer = data.ptr;
  if (data.len < sizeof(*offer)) exit(1);
  CHECK(rpma_mr_remote_from_descriptor(offer->descriptor, offer->length, &remote));

  CHECK(rpma_write(connection, remote, 0, from, 0, kBytes, RPMA_F_COMPLETION_ON_ERROR, NULL));
  CHECK(rpma_flush(connection, remote, 0, kBytes, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, remote));
  wait_for_completion(connection, remote);
  CHECK(rpma_atomic_write(connection, remote, kWord, kWordBytes, RPMA_F_COMPLETION_ALWAYS, from));
  wait_for_completion(connection, from);
  CHECK(rpma_read(connection, to, 0, remote, 0, kAll, RPMA_F_COMPLETION_ALWAYS, to));
  wait_for_completion(connection, to);
  compare(read_back, "client");

  CHECK(rpma_conn_disconnect(connection));
  wait_for(connection, RPMA_CONN_CLOSED);
  CHECK(rpma_mr_remote_delete(&remote));
  CHECK(rpma_conn_delete(&connection));
  CHECK(rpma_mr_dereg(&from));
  CHECK(rpma_mr_dereg(&to));
  free(bytes);
  free(read_back);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int is_server = strcmp(argv[1], "server") == 0;
  struct ibv_context* device = NULL;
  struct rpma_peer* peer = NULL;
  CHECK(rpma_utils_get_ibv_context(argv[2], is_server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
                                   &device));
  CHECK(rpma_peer_new(device, &peer));
  (is_server ? serve : transfer)(peer, argv[2], argv[3]);
  CHECK(rpma_peer_delete(&peer));
  printf("%s: all bytes are correct\n", argv[1]);
  return 0;
}
