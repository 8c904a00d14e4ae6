// Runs a program as a container runtime runs one in a pod without privileges:
//
//   pod_run [--host-users] ROOT PROGRAM [ARGUMENT...]
//
// The program has namespaces of its own for users, mounts, processes, IPC and the host name; the network namespace is
// the caller's. With --host-users it has no namespace for users, as in most clusters. Its root is ROOT, read-only, with the file systems that a container has: /proc, /sys (read-only), a few
// devices, and 64 MiB in /dev/shm. It is an ordinary user (1000) without capabilities, cannot gain any, and the system
// calls that Docker's default profile refuses are refused. Its exit status is that of the program. Needs root.
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kUser = 1000;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "pod_run: %s: %s\n", what.c_str(), std::strerror(errno));
  _exit(125);
}

void check(bool done, const std::string& what) {
  if (!done) fail(what);
}

void write_file(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  check(fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()), path);
  close(fd);
}

// ---- The file systems

void bind_mount(const std::string& from, const std::string& to) {
  check(mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0, "mount " + to);
}

void make_read_only(const std::string& path, unsigned long flags) {
  check(mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, nullptr) == 0,
        "mount " + path + " read-only");
}

void enter_root(const std::string& root) {
  check(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "make mounts private");
  bind_mount(root, root);
  const std::string dev = root + "/dev";
  check(mount("tmpfs", dev.c_str(), "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=755") == 0, "mount /dev");
  for (const char* const name : {"null", "zero", "full", "random", "urandom"}) {
    const std::string node = dev + "/" + name;
    const int made = open(node.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    check(made >= 0, node);
    close(made);
    bind_mount(std::string("/dev/") + name, node);
  }
  check(symlink("/proc/self/fd", (dev + "/fd").c_str()) == 0, "link /dev/fd");
  check(mkdir((dev + "/shm").c_str(), 01777) == 0, "make /dev/shm");
  check(mount("shm", (dev + "/shm").c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64m,mode=1777") == 0,
        "mount /dev/shm");
  check(mount("proc", (root + "/proc").c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0, "mount /proc");
  bind_mount("/sys", root + "/sys");
  make_read_only(root + "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  make_read_only(root, 0);
  check(chdir(root.c_str()) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0,
        "enter " + root);
  check(chdir("/") == 0, "enter /");
}

// ---- The system calls
// Docker's default profile has a list of allowed calls. On x86-64, a container without capabilities lacks the calls
// below. Source: profiles/seccomp/default.json of moby.

constexpr int kRefused[] = {
    SYS_acct,
    SYS_add_key,
    SYS_bpf,
    SYS_chroot,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fsopen,
    SYS_fspick,
    SYS_get_mempolicy,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_ioperm,
    SYS_iopl,
    SYS_kcmp,
    SYS_kexec_file_load,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_mbind,
    SYS_migrate_pages,
    SYS_mount,
    SYS_mount_setattr,
    SYS_move_mount,
    SYS_move_pages,
    SYS_nfsservctl,
    SYS_open_by_handle_at,
    SYS_open_tree,
    SYS_perf_event_open,
    SYS_pidfd_getfd,
    SYS_pivot_root,
    SYS_process_madvise,
    SYS_quotactl,
    SYS_reboot,
    SYS_request_key,
    SYS_set_mempolicy,
    SYS_setdomainname,
    SYS_sethostname,
    SYS_setns,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_sysfs,
    SYS_syslog,
    SYS_umount2,
    SYS_unshare,
    SYS_uselib,
    SYS_userfaultfd,
    SYS_ustat,
    SYS_vhangup,
};
constexpr unsigned kNewNamespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

void refuse_calls() {
  constexpr std::uint32_t kNumber = offsetof(seccomp_data, nr);
  constexpr std::uint32_t kFirstArgument = offsetof(seccomp_data, args);
  const auto refuse = [](int error) {
    return sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
  };
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  std::vector<sock_filter> program{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      refuse(EPERM),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
  };
  const auto if_equal = [&program](int call, std::initializer_list<sock_filter> then) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0,
                               static_cast<std::uint8_t>(then.size())));
    program.insert(program.end(), then);
  };
  for (const int call : kRefused) if_equal(call, {refuse(EPERM)});
  if_equal(SYS_clone3, {refuse(ENOSYS)});
  if_equal(SYS_clone, {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFirstArgument),
                       BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNewNamespaces, 0, 1), refuse(EPERM), allow});
  if_equal(SYS_socket, {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFirstArgument),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_VSOCK, 0, 1), refuse(EPERM), allow});
  program.push_back(allow);
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "set the filter of system calls");
}

void become_ordinary() {
  check(setgroups(0, nullptr) == 0 && setresgid(kUser, kUser, kUser) == 0, "set the group");
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    check(prctl(PR_CAPBSET_DROP, capability) == 0, "drop a capability");
  }
  check(setresuid(kUser, kUser, kUser) == 0, "set the user");
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "give up privileges");
}

[[noreturn]] void run(const std::string& root, char** program) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  enter_root(root);
  become_ordinary();
  refuse_calls();
  clearenv();
  setenv("PATH", "/opt/softrdma/bin:/usr/bin:/bin", 1);
  setenv("HOME", "/nonexistent", 1);
  execvp(program[0], program);
  std::fprintf(stderr, "pod_run: %s: %s\n", program[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_host_users = argc > 1 && std::strcmp(argv[1], "--host-users") == 0;
  if (has_host_users) --argc, ++argv;
  if (argc < 3) {
    std::fputs("usage: pod_run [--host-users] ROOT PROGRAM [ARGUMENT...]\n", stderr);
    return 125;
  }
  int ready[2];
  int mapped[2];
  check(pipe2(ready, O_CLOEXEC) == 0 && pipe2(mapped, O_CLOEXEC) == 0, "pipe");
  const pid_t outer = fork();
  check(outer >= 0, "fork");
  char byte = 0;
  if (outer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int users = has_host_users ? 0 : CLONE_NEWUSER;
    check(unshare(users | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) == 0, "unshare");
    check(write(ready[1], &byte, 1) == 1 && read(mapped[0], &byte, 1) == 1, "wait for the users");
    check(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0, "become root of the namespace");
    const pid_t inner = fork();  // the first process of the namespace
    check(inner >= 0, "fork");
    if (inner == 0) run(argv[1], argv + 2);
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  check(read(ready[0], &byte, 1) == 1, "wait for the namespaces");
  const std::string process = "/proc/" + std::to_string(outer);
  // Root of the namespace is root here, so that it can mount; the program's user is nobody's here.
  const std::string users = "0 0 1\n" + std::to_string(kUser) + " 101000 1\n";
  if (!has_host_users) {
    write_file(process + "/uid_map", users);
    write_file(process + "/gid_map", users);
  }
  check(write(mapped[1], &byte, 1) == 1, "continue");
  int status = 0;
  waitpid(outer, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
