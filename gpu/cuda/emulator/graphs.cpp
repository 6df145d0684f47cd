// Graphs: work that was captured from streams, run again in the order in which it was given.
#include <algorithm>

#include "state.h"

using namespace emulator;

EXPORT int cuStreamBeginCapture_v2(void* handle, int) {
  ENTER(call);
  Stream* s = or_default(handle, call.device());
  if (s == or_default(nullptr, call.device()) || s->capture) return kCaptureUnsupported;
  s->capture = std::make_shared<Capture>();
  s->capture->graph = new Graph;
  s->capture->origin = s;
  return call.done(0);
}

EXPORT int cuStreamIsCapturing(void* handle, int* status) {
  ENTER(call);
  const Stream* s = or_default(handle, call.device());
  *status = !s->capture ? 0 : s->capture->broken ? 2 : 1;
  return 0;
}

// unjoined says whether work of another stream was captured that the first one does not wait for.
static bool unjoined(const Capture& c) {
  return std::any_of(c.last.begin(), c.last.end(), [&](const auto& entry) {
    if (entry.first == c.origin) return false;
    const auto joined = c.joined.find(entry.first);
    return joined == c.joined.end() || joined->second <= entry.second;
  });
}

EXPORT int cuStreamEndCapture(void* handle, Graph** graph) {
  ENTER(call);
  Stream* s = or_default(handle, call.device());
  *graph = nullptr;
  if (!s->capture) return kInvalidValue;
  const std::shared_ptr<Capture> c = s->capture;
  if (c->origin != s) return kCaptureUnsupported;
  for (Stream* other : machine().streams) {
    if (other->capture == c) other->capture = nullptr;
  }
  const int code = c->broken ? kCaptureInvalidated : unjoined(*c) ? kCaptureUnjoined : 0;
  if (code) {
    delete c->graph;
    return code;
  }
  *graph = c->graph;
  return call.done(0);
}

EXPORT int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
  ENTER(call);
  if (!graph) return kInvalidValue;
  *executable = new Graph(*graph);
  return call.done(0);
}

EXPORT int cuGraphInstantiate_v2(Graph** executable, Graph* graph, void*, char*, size_t) {
  return cuGraphInstantiateWithFlags(executable, graph, 0);
}

EXPORT int cuGraphUpload(Graph*, void*) {
  ENTER(call);
  return call.done(0);
}

EXPORT int cuGraphLaunch(Graph* executable, void* handle) {
  ENTER(call);
  if (!executable) return kInvalidValue;
  if (strike(&machine().faults.launch)) return kOutOfResources;
  Stream* s = or_default(handle, call.device());
  for (const Op& op : executable->ops) machine().put(s, op);
  return call.done(0);
}

EXPORT int cuGraphDestroy(Graph* graph) {
  ENTER(call);
  delete graph;
  return 0;
}

EXPORT int cuGraphExecDestroy(Graph* executable) {
  ENTER(call);
  machine().drain_all();
  delete executable;
  return 0;
}
