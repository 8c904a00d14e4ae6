#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "mesh_comm_service/cluster.h"
#include "mesh_comm_service/host_book.h"
#include "mesh_comm_service/job_environment.h"
#include "mesh_comm_service/own_place.h"

namespace rdmacomm::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> texts(const Result<Cluster>& cluster) {
  if (!cluster) return {cluster.error().context};
  std::vector<std::string> all;
  for (const HostPort& node : *cluster) all.push_back(node.to_text());
  return all;
}

TEST(Cluster, IsAListWithOrWithoutPorts) {
  EXPECT_THAT(texts(parse_cluster("h1,h2:4000, h3 ", 2020)), ElementsAre("h1:2020", "h2:4000", "h3:2020"));
  EXPECT_THAT(texts(parse_cluster("10.0.0.1:1,10.0.0.1:2", 2020)), ElementsAre("10.0.0.1:1", "10.0.0.1:2"));
}

TEST(Cluster, CountsPortsUpIfAHostIsRepeatedWithoutOne) {
  EXPECT_THAT(texts(parse_cluster("h1,h1,h2,h1", 2020)), ElementsAre("h1:2020", "h1:2021", "h2:2020", "h1:2022"));
}

TEST(Cluster, ParsesIpv6) {
  EXPECT_THAT(texts(parse_cluster("[::1]:7,::1,[fd00::2],fe80::1%eth0", 2020)),
              ElementsAre("[::1]:7", "[::1]:2020", "[fd00::2]:2020", "[fe80::1%eth0]:2020"));
}

TEST(Cluster, ReportsErrors) {
  const auto why = [](const char* text) { return parse_cluster(text, 2020).error().context; };
  EXPECT_THAT(why("h1"), HasSubstr("1 node in the list; a mesh has 2 to 1024 nodes"));
  EXPECT_THAT(why("h1,,h2"), HasSubstr("the host is missing"));
  EXPECT_THAT(why(""), HasSubstr("the host is missing"));
  EXPECT_THAT(why("h1,:5"), HasSubstr("the host is missing"));
  EXPECT_THAT(why("h1,h2:0"), HasSubstr("\"h2:0\" is not a node: its port is not a number from 1 to 65535"));
  EXPECT_THAT(why("h1,h2:65536"), HasSubstr("its port"));
  EXPECT_THAT(why("h1,h2:x"), HasSubstr("its port"));
  EXPECT_THAT(why("h1,h 2"), HasSubstr("must not contain blanks"));
  EXPECT_THAT(why("h1,5000"), HasSubstr("\"5000\" is not a node: a host must not be only a number"));
  EXPECT_THAT(why("h1:5,h1:5"), HasSubstr("\"h1:5\" is not a node: it is in the list twice"));
  EXPECT_THAT(why("[::1:5,h2"), HasSubstr("bracket"));
  EXPECT_THAT(parse_cluster("h1,h1", 65535).error().context, HasSubstr("no port up to 65535 is left"));
  std::string many = "h0";
  for (std::size_t i = 1; i <= kMaxNodes; ++i) many += ",h" + std::to_string(i);
  EXPECT_THAT(why(many.c_str()), HasSubstr("1025 nodes in the list"));
}

TEST(Cluster, UnprintableNamesAreRefused) {
  EXPECT_THAT(parse_cluster("h1,h\x1b[2J2", 2020).error().context,
              HasSubstr("\"h?[2J2\" is not a node: a host must not contain unprintable characters"));
  EXPECT_THAT(parse_cluster("h1,h2:\x1b", 2020).error().context, HasSubstr("\"h2:?\" is not a node: its port"));
  EXPECT_TRUE(parse_cluster("h1,b\xc3\xbc"
                            "cher",
                            2020)
                  .has_value());
}

TEST(HostFile, HasOneNodeOnEachLineAndComments) {
  EXPECT_THAT(texts(parse_host_file("# nodes\nh1\n\n  h2:77  # the second\nh3 slots=2\r\n", 2020)),
              ElementsAre("h1:2020", "h2:77", "h3:2020", "h3:2021"));
  EXPECT_THAT(texts(parse_host_file("\xEF\xBB\xBFh1\nh2\n", 2020)), ElementsAre("h1:2020", "h2:2020"));
}

TEST(HostFile, RefusesAListOnOneLine) {
  EXPECT_THAT(parse_host_file("h1,h2\nh3\n", 2020).error().context,
              HasSubstr("line 1: \"h1,h2\" is not a node: a host must not contain commas"));
}

TEST(HostFile, NamesTheLineThatIsWrong) {
  EXPECT_THAT(parse_host_file("h1\nh2:many\n", 2020).error().context, HasSubstr("line 2: \"h2:many\""));
  EXPECT_THAT(parse_host_file("h1\nh2 slots=none\n", 2020).error().context, HasSubstr("slots=N"));
  EXPECT_THAT(parse_host_file("h1\nh2 cores\n", 2020).error().context, HasSubstr("line 2"));
  EXPECT_THAT(parse_host_file("h1\n", 2020).error().context, HasSubstr("1 node"));
  EXPECT_THAT(parse_host_file("", 2020).error().context, HasSubstr("it contains no nodes"));
  EXPECT_THAT(parse_host_file("# none yet\n", 2020).error().context, HasSubstr("it contains no nodes"));
}

TEST(ClusterWords, AreJoined) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(join_cluster_words({"p", "--cluster", "h1", "h2", "--op=read", "h3"}),
            (Words{"p", "--cluster=h1,h2", "--op=read", "h3"}));
  EXPECT_EQ(join_cluster_words({"p", "--cluster=h1", "h2,", "h3"}), (Words{"p", "--cluster=h1,h2,h3"}));
  EXPECT_EQ(join_cluster_words({"p", "-cluster", "h1,h2"}), (Words{"p", "--cluster=h1,h2"}));
  EXPECT_EQ(join_cluster_words({"p", "--local=2", "word"}), (Words{"p", "--local=2", "word"}));
  EXPECT_EQ(join_cluster_words({"p", "--cluster"}), (Words{"p", "--cluster="}));
}

// The node's own rank ------------------------------------------------------------------------------------------------

/// A list of hosts. The hosts in `here` are this machine. h9 has no address.
HostBook book(std::set<std::string> here) {
  return HostBook(Deadline::never(),
                  [here = std::move(here)](const HostPort& node, Deadline deadline) -> HostBook::Addresses {
                    if (node.host == "h9") return make_error(Errc::kInvalidArgument, "no such host");
                    return find_addresses({.host = here.contains(node.host) ? "127.0.0.1" : "203.0.113.1"}, deadline);
                  });
}

TEST(Rank, IsTheRankOfTheOnlyLocalNode) {
  const Cluster cluster = *parse_cluster("h1,h2,h3", 2020);
  HostBook second = book({"h2"});
  EXPECT_EQ(find_rank(cluster, second).value(), 1);
  HostBook none = book({});
  EXPECT_THAT(find_rank(cluster, none).error().context, HasSubstr("none of the nodes"));
  HostBook two = book({"h1", "h2"});
  EXPECT_THAT(find_rank(cluster, two).error().context,
              HasSubstr("nodes 0 (h1:2020) and 1 (h2:2020) are both on this host"));
}

TEST(Rank, IsFoundAlthoughAnotherHostHasNoAddress) {
  const Cluster cluster = *parse_cluster("h9,h2,h3", 2020);
  HostBook third = book({"h3"});
  EXPECT_EQ(find_rank(cluster, third).value(), 2);
  HostBook none = book({});
  EXPECT_THAT(find_rank(cluster, none).error().context, HasSubstr("no such host"));
}

TEST(Local, IsThisMachineAndNoOther) {
  const auto local = [](const char* host) { return is_local(*find_addresses({.host = host}, Deadline::never())); };
  EXPECT_TRUE(local("127.0.0.1"));
  EXPECT_TRUE(local("127.9.8.7"));
  EXPECT_FALSE(local("203.0.113.1"));  // a documentation address
}

TEST(Listening, IsOnAllAddressesIfTheOwnNameIsOnTheLoopbackInterface) {
  HostBook first = book({"h1"});
  EXPECT_TRUE(listens_everywhere(*parse_cluster("h1,h2", 2020), 0, first));
  HostBook both = book({"h1", "h2"});
  EXPECT_FALSE(listens_everywhere(*parse_cluster("h1,h2", 2020), 0, both));
  EXPECT_TRUE(listens_everywhere(*parse_cluster("h9,h2", 2020), 0, both)) << "it has no address that it knows";
}

TEST(HostBook, ResolvesEachHostOnceInParallelUntilOneDeadline) {
  const Deadline by = Deadline::after(std::chrono::hours(1));
  std::mutex mutex;
  std::condition_variable changed;
  std::multiset<std::string> asked;
  HostBook hosts(by, [&](const HostPort& node, Deadline deadline) {
    std::unique_lock lock(mutex);
    asked.insert(node.host);
    changed.notify_all();
    EXPECT_EQ(deadline.time_point(), by.time_point());
    // The first lookups are only answered after all of them have started.
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return asked.size() >= HostBook::kAtOnce; }));
    return find_addresses({.host = "203.0.113.1"}, deadline);
  });
  Cluster nodes;
  for (std::size_t i = 0; i < 3 * HostBook::kAtOnce; ++i)
    nodes.push_back({.host = "h" + std::to_string(i / 2), .port = static_cast<std::uint16_t>(i + 1)});
  hosts.look_up(nodes);
  EXPECT_THAT(asked, SizeIs(nodes.size() / 2));
  EXPECT_TRUE(hosts.of(nodes.back()).has_value());
  hosts.look_up(nodes);
  EXPECT_THAT(asked, SizeIs(nodes.size() / 2)) << "what is known is not asked for again";
}

// Variables of launchers ---------------------------------------------------------------------------------------------

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Result<std::optional<Job>> job_of(const Variables& variables) {
  return find_job(environment_of(variables));
}

Result<Cluster> hosts_of(const Variables& variables) {
  const auto job = job_of(variables);
  if (!job) return job.error();
  return find_hosts(environment_of(variables), job->value(), 2020);
}

TEST(JobEnvironment, IsEmptyWithoutALauncher) {
  EXPECT_FALSE(job_of({}).value().has_value());
  EXPECT_FALSE(job_of({{"SLURM_PROCID", "0"}}).value().has_value());
}

const Variables kSlurm = {{"SLURM_PROCID", "2"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_STEP_NODELIST", "n[08-10],login"},
                          {"SLURM_STEP_TASKS_PER_NODE", "1,2,1(x2)"}};

TEST(JobEnvironment, OfSlurmHasRankAndHosts) {
  const auto job = job_of(kSlurm);
  ASSERT_TRUE(job.has_value()) << job.error().message();
  EXPECT_EQ((*job)->rank, 2);
  EXPECT_THAT(texts(hosts_of(kSlurm)), ElementsAre("n08:2020", "n09:2020", "n09:2021", "n10:2020", "login:2020"));
}

TEST(JobEnvironment, OfSlurmHasHostsIfRanksFollowThem) {
  Variables variables = kSlurm;
  for (const char* fitting : {"block", "block:cyclic", "block,NoPack", "*:block", ""}) {
    variables["SLURM_DISTRIBUTION"] = fitting;
    EXPECT_TRUE(hosts_of(variables).has_value()) << fitting;
  }
  for (const char* other : {"cyclic", "cyclic:block", "plane=2", "arbitrary"}) {
    variables["SLURM_DISTRIBUTION"] = other;
    EXPECT_TRUE(job_of(variables).has_value()) << other;  // --cluster may name the hosts
    EXPECT_THAT(hosts_of(variables).error().context, HasSubstr("--distribution=block")) << other;
  }
  variables["SLURM_NTASKS"] = "4";
  variables["SLURM_STEP_TASKS_PER_NODE"] = "1(x4)";
  variables["SLURM_DISTRIBUTION"] = "cyclic";
  EXPECT_TRUE(hosts_of(variables).has_value());
}

TEST(JobEnvironment, OfMpirunOnOneMachineIsThatMachine) {
  const Variables variables = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
  const auto job = job_of(variables);
  ASSERT_TRUE(job.has_value()) << job.error().message();
  EXPECT_EQ((*job)->launcher, "Open MPI");
  EXPECT_THAT(texts(hosts_of(variables)), ElementsAre("127.0.0.1:2020", "127.0.0.1:2021", "127.0.0.1:2022"));
}

TEST(JobEnvironment, OfMpirunOnSeveralMachinesNeedsAListUnlessSlurmHasIt) {
  Variables variables = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_THAT(hosts_of(variables).error().context,
              HasSubstr("Open MPI does not tell on which hosts its 2 processes are"));
  variables["SLURM_JOB_NODELIST"] = "a,b";
  variables["SLURM_TASKS_PER_NODE"] = "1(x2)";
  variables["SLURM_PROCID"] = "0";  // of the daemon that mpirun started
  variables["SLURM_NTASKS"] = "2";
  EXPECT_EQ((*job_of(variables))->rank, 1);
  EXPECT_THAT(texts(hosts_of(variables)), ElementsAre("a:2020", "b:2020"));
}

TEST(JobEnvironment, OfPmi) {
  const Variables variables = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ((*job_of(variables))->size, 2);
  EXPECT_THAT(hosts_of(variables).value(), SizeIs(2));
}

TEST(JobEnvironment, WithInvalidValuesIsRefused) {
  EXPECT_THAT(job_of({{"PMI_RANK", "two"}, {"PMI_SIZE", "2"}}).error().context,
              HasSubstr("PMI_RANK has an invalid value: \"two\""));
  EXPECT_THAT(job_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).error().context,
              HasSubstr("PMI_RANK has an invalid value: \"2\""));
  EXPECT_FALSE(hosts_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "n[1-"}}).has_value());
}

TEST(JobEnvironment, WithUnprintableValuesDoesNotSteerATerminal) {
  EXPECT_THAT(job_of({{"PMI_RANK", "\x1b[2J"}, {"PMI_SIZE", "2"}}).error().context,
              HasSubstr("PMI_RANK has an invalid value: \"?[2J\""));
  EXPECT_THAT(expand_host_list("n[\x1b]").error().context, HasSubstr("\"?\""));
}

// Each of them once caused a request for more memory than exists.
TEST(JobEnvironment, WithTooManyNodesIsRefused) {
  EXPECT_THAT(job_of({{"OMPI_COMM_WORLD_RANK", "0"},
                      {"OMPI_COMM_WORLD_SIZE", "2000000000"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2000000000"}})
                  .error()
                  .context,
              HasSubstr("OMPI_COMM_WORLD_SIZE has an invalid value: \"2000000000\""));
  EXPECT_FALSE(job_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2147483647"}}).has_value());
  EXPECT_THAT(hosts_of({{"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "2"},
                        {"SLURM_JOB_NODELIST", "n1"},
                        {"SLURM_TASKS_PER_NODE", "2147483647(x1)"}})
                  .error()
                  .context,
              HasSubstr("2147483647(x1)"));
}

TEST(SlurmLists, AreExpanded) {
  EXPECT_THAT(expand_host_list("a").value(), ElementsAre("a"));
  EXPECT_THAT(expand_host_list("n[1-3,07]-ib,b").value(), ElementsAre("n1-ib", "n2-ib", "n3-ib", "n07-ib", "b"));
  EXPECT_THAT(expand_host_list("n[098-101]").value(), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(expand_host_list("a[1-2]b[1-2]").value(), ElementsAre("a1b1", "a1b2", "a2b1", "a2b2"));
  EXPECT_THAT(expand_host_list("r[1,3]n[08-09]-ib,x").value(),
              ElementsAre("r1n08-ib", "r1n09-ib", "r3n08-ib", "r3n09-ib", "x"));
  EXPECT_THAT(expand_task_counts("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  for (const char* bad :
       {"", "a,", "n[1-3", "n[3-1]", "n[a-b]", "n]1[", "n[1-99999999]", "a[1-2]b[1", "a[1-100]b[1-100]"}) {
    EXPECT_FALSE(expand_host_list(bad).has_value()) << bad;
  }
  for (const char* bad : {"", "x", "2(x", "2(x3", "(x3)", "2(x99999)", "2147483647", "1025", "32(x33)", "1(x1024),1"}) {
    EXPECT_FALSE(expand_task_counts(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace rdmacomm::mesh
