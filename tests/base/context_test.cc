#include "rdmacomm/context.h"

#include <gtest/gtest.h>

#include <memory>

namespace rdmacomm {
namespace {

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

TEST(Context, IsEmptyByDefault) {
  EXPECT_EQ(Context().get<int>(), nullptr);
}

TEST(Context, IsReturnedOnlyForTheTypeThatWasSet) {
  Context context;
  context.set(std::make_shared<int>(7));
  ASSERT_NE(context.get<int>(), nullptr);
  EXPECT_EQ(*context.get<int>(), 7);
  EXPECT_EQ(context.get<unsigned>(), nullptr);
  context.set<Base>(std::make_shared<Derived>());
  EXPECT_NE(context.get<Base>(), nullptr);
  EXPECT_EQ(context.get<Derived>(), nullptr);
  EXPECT_EQ(context.get<int>(), nullptr);
  context.set(std::shared_ptr<int>());
  EXPECT_EQ(context.get<int>(), nullptr);
}

TEST(Context, KeepsItsObjectUntilAnotherIsSet) {
  auto object = std::make_shared<int>(7);
  Context context;
  context.set(object);
  EXPECT_EQ(object.use_count(), 2);
  context.set(std::make_shared<int>(8));
  EXPECT_EQ(object.use_count(), 1);
}

}  // namespace
}  // namespace rdmacomm
