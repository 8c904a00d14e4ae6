/* all_to_all.c - MPI_Alltoall again and again, for bench/mesh_mpi.py: what mesh_comm_service is compared with.
 *
 * usage: mpirun -np N all_to_all BYTES SECONDS
 *
 * Each process sends BYTES to each other one in each round, from and to memory of its own for each pair, for SECONDS. Rank 0
 * prints one line: processes, bytes, rounds, seconds, and 10^9 bytes a second of all pairs of different processes together.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* why) {
  fprintf(stderr, "all_to_all: %s\n", why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  int rank = 0;
  int nodes = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nodes);
  const long bytes = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
  const double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
  if (bytes < 1 || bytes > 1L << 30 || !(seconds > 0)) fail("usage: all_to_all BYTES SECONDS");
  char* const out = malloc((size_t)bytes * (size_t)nodes);
  char* const in = malloc((size_t)bytes * (size_t)nodes);
  if (out == NULL || in == NULL) fail("not enough memory");
  memset(out, rank + 1, (size_t)bytes * (size_t)nodes);
  memset(in, 0, (size_t)bytes * (size_t)nodes);

  /* Rounds between two looks at the clock are the same on all: each such look is a broadcast. */
  long rounds = 0;
  long batch = 1;
  int more = 1;
  MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  double elapsed = 0;
  while (more) {
    for (long i = 0; i < batch; ++i) {
      MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    }
    rounds += batch;
    elapsed = MPI_Wtime() - began;
    if (elapsed < seconds / 16) batch *= 2;
    more = elapsed < seconds;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&batch, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  }
  for (int peer = 0; peer < nodes; ++peer) {
    if (in[(size_t)peer * (size_t)bytes] != (char)(peer + 1)) fail("the received data differs from the sent data");
  }
  if (rank == 0) {
    const double moved = (double)bytes * (double)rounds * nodes * (nodes - 1);
    printf("%d %ld %ld %.6f %.6f\n", nodes, bytes, rounds, elapsed, moved / elapsed / 1e9);
  }
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
