// Modules: the kernels that a PTX text names, each checked against the one that this library runs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

namespace emulator {

// letters gives the kinds of the parameters between two places of a PTX text, "?" for others.
static std::string letters(const std::string& text, size_t from, size_t to) {
  std::string kinds;
  for (size_t at = from; (at = text.find(".param .", at)) < to;) {
    at += strlen(".param .");
    const std::string type = text.substr(at, 3);
    kinds += type == "u64" ? 'p' : type == "u32" ? 'i' : type == "f32" ? 'f' : '?';
  }
  return kinds;
}

// number reads the first number behind a word between two places; 0 where there is none.
static int number(const std::string& text, const char* word, size_t from, size_t to) {
  const size_t at = text.find(word, from);
  return at < to ? atoi(text.c_str() + at + strlen(word)) : 0;
}

// entry reads the kernel whose name starts at `at`, and says in *wrong why it cannot run.
static Function entry(const std::string& text, size_t at, std::string* wrong) {
  const size_t open = text.find('(', at), close = text.find(')', open);
  Function f{};
  f.name = text.substr(at, open - at);
  f.params = letters(text, open, close);
  f.most_shared = kSharedWithoutAsking;
  for (const Kernel& k : kernels()) {
    if (k.name == f.name) f.kernel = &k;
  }
  if (!f.kernel) return f;
  const int threads = number(text, ".maxntid ", close, text.find('{', close));
  if (f.params != f.kernel->params) {
    *wrong = f.name + " takes (" + f.params + ") in the PTX, (" + f.kernel->params +
             ") in the emulated driver";
  } else if (threads != f.kernel->max_threads) {
    *wrong = f.name + " has blocks of " + std::to_string(threads) + " in the PTX, of " +
             std::to_string(f.kernel->max_threads) + " in the emulated driver";
  }
  return f;
}

static int load(const char* image, Module** out) {
  const std::string text(image);
  if (text.find(".version") == std::string::npos) return kInvalidImage;
  auto module = std::make_unique<Module>();
  static const char kEntry[] = ".entry ";
  for (size_t at = 0; (at = text.find(kEntry, at)) != std::string::npos;) {
    at += strlen(kEntry);
    std::string wrong;
    Function f = entry(text, at, &wrong);
    if (!wrong.empty()) {
      machine().log = wrong;
      fprintf(stderr, "emulated driver: %s\n", wrong.c_str());
      return kInvalidPtx;
    }
    module->functions[f.name] = f;
  }
  *out = module.release();
  return 0;
}

}  // namespace emulator

using namespace emulator;

EXPORT int cuModuleLoadData(Module** m, const void* image) {
  ENTER(call);
  return load(static_cast<const char*>(image), m);
}

EXPORT int cuModuleLoadDataEx(Module** m, const void* image, unsigned, void*, void*) {
  return cuModuleLoadData(m, image);
}

EXPORT int cuModuleUnload(Module* m) {
  ENTER(call);
  machine().drain_all();
  delete m;
  return call.done(0);
}

EXPORT int cuModuleGetFunction(Function** f, Module* m, const char* name) {
  ENTER(call);
  const auto found = m->functions.find(name);
  if (found == m->functions.end()) return kNotFound;
  *f = &found->second;
  return 0;
}

static constexpr int kMostShared = 8;  // the attribute's number

EXPORT int cuFuncSetAttribute(Function* f, int attribute, int value) {
  ENTER(call);
  if (attribute != kMostShared) return 0;
  if (value < 0 || value > machine().shared) return kInvalidValue;
  f->most_shared = value;
  return 0;
}

EXPORT int cuFuncGetAttribute(int* value, int attribute, Function* f) {
  ENTER(call);
  constexpr int kThreads = 0;
  *value = attribute == kMostShared ? f->most_shared
           : attribute == kThreads && f->kernel ? f->kernel->max_threads
                                                : 0;
  return 0;
}

// sizes: a pointer is 8 bytes, the others are 4.
static size_t size_of(char letter) { return letter == 'p' ? 8 : 4; }

namespace {

// Arguments are a launch's parameters, copied when it is given.
struct Arguments {
  std::vector<uint64_t> cells;

  Arguments(const Function& f, void* const* params) : cells(f.params.size()) {
    for (size_t i = 0; i < cells.size(); i++) memcpy(&cells[i], params[i], size_of(f.params[i]));
  }
  std::vector<void*> pointers() {
    std::vector<void*> all;
    for (uint64_t& c : cells) all.push_back(&c);
    return all;
  }
};

}  // namespace

EXPORT int cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void* handle, void** params,
                          void**) {
  ENTER(call);
  constexpr unsigned kMostBlocks = 65535;
  if (!gx || !gy || !gz || gx > 0x7fffffffu || gy > kMostBlocks || gz > kMostBlocks) {
    return kInvalidValue;
  }
  if (!bx || by != 1 || bz != 1 || bx > static_cast<unsigned>(kMaxThreads)) return kInvalidValue;
  if (static_cast<int>(shared) > f->most_shared) return kInvalidValue;
  if (!f->kernel) return kNotSupported;
  if (static_cast<int>(bx) > f->kernel->max_threads) return kOutOfResources;
  Stream* s = or_default(handle, call.device());
  if (!s->capture && strike(&machine().faults.launch)) return kOutOfResources;
  auto arguments = std::make_shared<Arguments>(*f, params);
  const Kernel* kernel = f->kernel;
  Op op;
  op.what = kernel->name;
  op.engine = kCompute;
  op.seconds = s->capture ? kGraphLaunchSeconds : kLaunchSeconds;
  op.run = [=](Work* done) {
    Launch l{kernel,
             {static_cast<int>(gx), static_cast<int>(gy), static_cast<int>(gz)},
             static_cast<int>(bx),
             static_cast<int>(shared),
             arguments->pointers(),
             machine().seed};
    return run(l, done);
  };
  return call.done(machine().put(s, std::move(op)));
}
