#include "endpoint/endpoint_life.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using Finish = EndPointLife::Finish;

Error because(Errc code) {
  return make_error(code, "a test");
}

TEST(EndPointLife, EndsWhenItIsStopped) {
  EndPointLife life;
  EXPECT_TRUE(life.setting_up());
  EXPECT_FALSE(life.alive() || life.over() || life.was_established());
  EXPECT_TRUE(life.establish());
  EXPECT_TRUE(life.alive() && life.was_established());
  EXPECT_FALSE(life.setting_up() || life.over() || life.announced());
  life.announce();
  EXPECT_TRUE(life.announced() && life.alive());
  EXPECT_TRUE(life.why());
  EXPECT_TRUE(life.stop(because(Errc::kStopped)));
  EXPECT_FALSE(life.stop(because(Errc::kStopped))) << "only the first moves the queue pairs";
  EXPECT_TRUE(life.over() && life.was_established() && life.announced());
  EXPECT_FALSE(life.alive());
  EXPECT_EQ(life.why().code(), Errc::kStopped);
  EXPECT_TRUE(life.outcome()) << "in order";
}

TEST(EndPointLife, TheFirstReasonStays) {
  EndPointLife life;
  EXPECT_TRUE(life.establish());
  EXPECT_TRUE(life.end(because(Errc::kPeerLost), false));
  EXPECT_FALSE(life.end(because(Errc::kDeviceLost), false));
  EXPECT_TRUE(life.stop(because(Errc::kStopped))) << "the queue pairs are still to be moved";
  EXPECT_EQ(life.why().code(), Errc::kPeerLost);
  EXPECT_EQ(life.outcome().code(), Errc::kPeerLost);
}

TEST(EndPointLife, APeerThatClosesEndsItInOrder) {
  EndPointLife life;
  EXPECT_TRUE(life.establish());
  EXPECT_TRUE(life.end(because(Errc::kPeerClosed), true));
  EXPECT_EQ(life.why().code(), Errc::kPeerClosed);
  EXPECT_TRUE(life.outcome());
}

TEST(EndPointLife, AnEndedEndPointIsNeverEstablished) {
  EndPointLife life;
  EXPECT_TRUE(life.end(because(Errc::kPeerLost), false));
  EXPECT_FALSE(life.establish());
  EXPECT_TRUE(life.over());
  EXPECT_FALSE(life.was_established() || life.setting_up());
}

TEST(EndPointLife, AnAbortOfTheApplicationIsNoOrderlyEnd) {
  for (const Errc code : {Errc::kStopped, Errc::kPeerClosed}) {
    EndPointLife life;
    EXPECT_TRUE(life.establish());
    EXPECT_TRUE(life.end(because(code), false));
    EXPECT_TRUE(life.stop(because(Errc::kStopped)));
    EXPECT_EQ(life.outcome().code(), code);
  }
}

TEST(EndPointLife, NoThreadSeesTwoContradictoryStates) {
  for (int round = 0; round < 200; ++round) {
    EndPointLife life;
    std::atomic<bool> over{false};
    std::thread looks([&] {
      while (!over.load()) {
        const bool alive = life.alive();
        EXPECT_TRUE(!alive || life.was_established());
      }
    });
    std::thread ends([&] { (void)life.end(because(Errc::kPeerLost), false); });
    std::thread announces([&] { life.announce(); });
    const bool established = life.establish();
    EXPECT_EQ(life.was_established(), established);
    ends.join();
    announces.join();
    over.store(true);
    looks.join();
    EXPECT_TRUE(life.over() && life.announced());
    EXPECT_EQ(life.was_established(), established);
  }
}

TEST(EndPointLife, IsFinishedOnce) {
  EndPointLife life;
  EXPECT_TRUE(life.stop(because(Errc::kStopped)));
  EXPECT_EQ(life.begin_finish(1ms), Finish::kMine);
  EXPECT_EQ(life.begin_finish(1ms), Finish::kOtherThread);
  life.end_finish(false);
  EXPECT_EQ(life.begin_finish(1ms), Finish::kMine) << "something is outstanding yet: again";
  life.end_finish(true);
  EXPECT_EQ(life.begin_finish(1ms), Finish::kGone);
}

TEST(EndPointLife, IsFinishedWhenItsServersAreDone) {
  EndPointLife life;
  life.begin_serving(std::this_thread::get_id());
  EXPECT_TRUE(life.served_by_this_thread());
  EXPECT_EQ(life.servers(), 1U);
  EXPECT_EQ(life.begin_finish(1ms), Finish::kServed);
  const std::thread::id server = std::this_thread::get_id();
  std::thread other([&] { life.end_serving(server); });
  EXPECT_EQ(life.begin_finish(Deadline::never()), Finish::kMine);
  other.join();
  life.end_finish(true);
  EXPECT_FALSE(life.served_by_this_thread());
}

TEST(EndPointLife, ADiscardedOneIsGone) {
  EndPointLife life;
  life.discard();
  EXPECT_TRUE(life.over());
  EXPECT_FALSE(life.stop(because(Errc::kStopped)));
  EXPECT_EQ(life.begin_finish(1ms), Finish::kGone);
}

}  // namespace
}  // namespace rdmacomm
