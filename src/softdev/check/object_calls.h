// object_calls.h - the common parts of calls that make and end objects.
#pragma once

#include <cerrno>
#include <memory>
#include <utility>

#include "softdev/check/locked.h"
#include "softdev/check/objects.h"
#include "softdev/check/report.h"

namespace rdmacomm::softdev::check {

/// An object with the address of a new one was ended by a call that the checker does not see. So were its requests.
/// Threads: the caller holds a Locked.
void forget_requests_of(const void* address);

/// Records an object that a call has made. nullptr: the call has failed.
/// uses     the objects that must be ended later; nullptr: none
/// prepare  called with the object before it is recorded, with a Locked
template <typename Type, typename Verbs, typename Prepare>
Verbs* record(Verbs* made, std::initializer_list<const void*> uses, const Prepare& prepare) {
  if (made == nullptr) return nullptr;
  const int error = errno;
  const StackId stack = capture_stack();
  const Locked locked;
  auto object = std::make_unique<Type>(made);
  object->created = stack;
  for (const void* const used : uses) {
    if (used != nullptr) object->uses.push_back(used);
  }
  forget_requests_of(made);
  prepare(*object);
  objects().add(std::move(object));
  errno = error;
  return made;
}
template <typename Type, typename Verbs>
Verbs* record(Verbs* made, std::initializer_list<const void*> uses) {
  return record<Type>(made, uses, [](Type&) {});
}

/// An object of which only the lifetime matters.
template <ObjectKind kKind>
struct Plain : Object {
  template <typename Verbs>
  explicit Plain(Verbs* verbs) : Object(kKind, verbs, verbs->context) {}
};

/// Reports an object that was not ended because others use it. Returns the result of the call.
int check_refused(const void* object, const char* call, int error);

/// Calls a function that ends an object and returns 0 or an errno value. The object is taken out before the call,
/// because another thread may get the same address for a new one. If the call fails, it is taken in again.
/// after  called with the object after the call has succeeded, with a Locked
template <typename Type, typename Call, typename After>
int end_queue(const void* address, const char* name, const Call& call, const After& after) {
  std::shared_ptr<Object> object;
  {
    const Locked locked;
    object = objects().take(address);
  }
  const int error = call();
  const int kept = errno;
  const Locked locked;
  if (error != 0) {
    if (object != nullptr) objects().put_back(std::move(object));
    static_cast<void>(check_refused(address, name, error));
  } else if (auto* const ended = dynamic_cast<Type*>(object.get()); ended != nullptr) {
    after(*ended);
  }
  errno = kept;
  return error;
}
template <typename Call>
int end_object(const void* address, const char* name, const Call& call) {
  return end_queue<Object>(address, name, call, [](Object&) {});
}

}  // namespace rdmacomm::softdev::check
