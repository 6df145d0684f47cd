// The order of work. Each step runs the first operation of one stream: with seed 0 that which can
// run and was made first, with any other seed one that the seed picks.
#include <stdio.h>

#include <algorithm>

#include "state.h"

namespace emulator {

bool Machine::runnable(const Stream* s) const {
  if (s->queue.empty()) return false;
  const Op& op = s->queue.front();
  return !op.wait || op.wait->done >= op.generation;
}

bool Machine::step() {
  std::vector<Stream*> ready;
  for (size_t i = 0; i < devices.size(); i++) {
    if (runnable(&defaults[i])) ready.push_back(&defaults[i]);
  }
  for (Stream* s : streams) {
    if (runnable(s)) ready.push_back(s);
  }
  if (ready.empty()) return false;
  Stream* s = ready[seed ? random() % ready.size() : 0];
  Op op = std::move(s->queue.front());
  s->queue.pop_front();
  perform(s, std::move(op));
  return true;
}

void Machine::perform(Stream* s, Op op) {
  if (op.wait) {
    s->time = std::max(s->time, op.wait->time);
    return;
  }
  if (op.record) {
    op.record->done = op.generation;
    op.record->time = s->time;
    return;
  }
  Device& d = devices[s->device];
  double start = s->time;
  if (op.engine != kNoEngine) start = std::max(start, d.free[op.engine]);
  Work done;
  if (d.lost == 0) {
    Failure f = strike(&faults.lost) ? Failure{kUnknown, "planted: device lost"} : op.run(&done);
    if (f.code) f.text = op.what + ": " + f.text;
    fail(s->device, f);
  }
  if (op.engine == kCompute) launches++;
  s->time = start + op.seconds +
            std::max(static_cast<double>(done.bytes) / kMemoryRate,
                     static_cast<double>(done.flops) / kFlopsPerSecond);
  if (op.engine != kNoEngine) d.free[op.engine] = s->time;
  now = std::max(now, s->time);
}

void Machine::drain(Stream* s) {
  while (!s->queue.empty()) {
    if (step()) continue;
    fail(s->device, Failure{kUnknown, "streams wait for one another"});
    s->queue.clear();
  }
}

void Machine::drain_all() {
  while (step()) {
  }
}

// perhaps_step lets work run early now and then: seed 0 runs none before somebody waits.
void Machine::perhaps_step() {
  while (seed && random() % 4 == 0 && step()) {
  }
}

// put gives work to a stream, or to the graph that is made of it. The default stream waits for all
// others that do not ask to be left out.
int Machine::put(Stream* s, Op op) {
  if (s->capture) {
    Capture& c = *s->capture;
    c.last[s] = c.graph->ops.size();
    c.graph->ops.push_back(std::move(op));
    return 0;
  }
  if (s == &defaults[s->device]) {
    constexpr unsigned kNonBlocking = 1;
    for (Stream* other : streams) {
      if (other->device == s->device && !(other->flags & kNonBlocking)) drain(other);
    }
  }
  s->queue.push_back(std::move(op));
  perhaps_step();
  return 0;
}

}  // namespace emulator

using namespace emulator;

EXPORT int cuStreamCreateWithPriority(Stream** s, unsigned flags, int priority) {
  ENTER(call);
  *s = new Stream;
  (*s)->device = call.device();
  (*s)->flags = flags;
  (*s)->priority = priority;
  machine().streams.push_back(*s);
  return 0;
}

EXPORT int cuStreamCreate(Stream** s, unsigned flags) {
  return cuStreamCreateWithPriority(s, flags, 0);
}

EXPORT int cuStreamDestroy_v2(void* handle) {
  ENTER(call);
  auto& all = machine().streams;
  const auto found = std::find(all.begin(), all.end(), handle);
  if (found == all.end()) return kInvalidHandle;
  Stream* s = *found;
  machine().drain(s);
  all.erase(std::find(all.begin(), all.end(), s));
  delete s;
  return 0;
}

EXPORT int cuStreamSynchronize(void* handle) {
  ENTER(call);
  Stream* s = or_default(handle, call.device());
  if (s->capture) {
    s->capture->broken = true;
    return kCaptureUnsupported;
  }
  machine().drain(s);
  return call.done(0);
}

EXPORT int cuStreamQuery(void* handle) {
  ENTER(call);
  Stream* s = or_default(handle, call.device());
  machine().step();
  return call.done(s->queue.empty() ? 0 : kNotReady);
}

EXPORT int cuStreamGetFlags(void* handle, unsigned* flags) {
  ENTER(call);
  *flags = or_default(handle, call.device())->flags;
  return 0;
}

EXPORT int cuStreamGetPriority(void* handle, int* priority) {
  ENTER(call);
  *priority = or_default(handle, call.device())->priority;
  return 0;
}

EXPORT int cuLaunchHostFunc(void* handle, void (*f)(void*), void* data) {
  ENTER(call);
  Op op;
  op.what = "host function";
  op.run = [=](Work*) {
    f(data);
    return Failure{};
  };
  return call.done(machine().put(or_default(handle, call.device()), std::move(op)));
}

EXPORT int cuEventCreate(Event** e, unsigned flags) {
  ENTER(call);
  *e = new Event;
  (*e)->flags = flags;
  return 0;
}

EXPORT int cuEventDestroy_v2(Event* e) {
  ENTER(call);
  delete e;
  return 0;
}

EXPORT int cuEventRecord(Event* e, void* handle) {
  ENTER(call);
  Stream* s = or_default(handle, call.device());
  e->capture = s->capture;
  e->stream = s;
  if (s->capture) {
    e->place = s->capture->graph->ops.size();
    return 0;
  }
  Op op;
  op.record = e->mark;
  op.generation = ++e->mark->wanted;
  return call.done(machine().put(s, std::move(op)));
}

// wait_captured makes a stream part of the graph that the event belongs to.
static int wait_captured(Stream* s, Event* e) {
  if (s->capture && s->capture != e->capture) return kCaptureIsolation;
  s->capture = e->capture;
  if (s == e->capture->origin) e->capture->joined[e->stream] = e->place;
  return 0;
}

EXPORT int cuStreamWaitEvent(void* handle, Event* e, unsigned) {
  ENTER(call);
  Stream* s = or_default(handle, call.device());
  if (e->capture) return wait_captured(s, e);
  if (s->capture) return kCaptureIsolation;
  if (e->mark->wanted == 0) return 0;
  Op op;
  op.wait = e->mark;
  op.generation = e->mark->wanted;
  return call.done(machine().put(s, std::move(op)));
}

EXPORT int cuEventSynchronize(Event* e) {
  ENTER(call);
  if (e->capture) return kCaptureUnsupported;
  const uint64_t wanted = e->mark->wanted;
  while (e->mark->done < wanted) {
    if (!machine().step()) return kUnknown;
  }
  return call.done(0);
}

EXPORT int cuEventQuery(Event* e) {
  ENTER(call);
  machine().step();
  return call.done(e->mark->done >= e->mark->wanted ? 0 : kNotReady);
}

EXPORT int cuEventElapsedTime(float* ms, Event* from, Event* to) {
  ENTER(call);
  constexpr unsigned kNoTiming = 2;
  if ((from->flags | to->flags) & kNoTiming) return kInvalidHandle;
  if (from->mark->wanted == 0 || to->mark->wanted == 0) return kInvalidHandle;
  for (const Event* e : {from, to}) {
    if (e->mark->done < e->mark->wanted) return kNotReady;
  }
  *ms = static_cast<float>((to->mark->time - from->mark->time) * 1e3);
  return call.done(0);
}
