// Runs the grid of a kernel: blocks one after another, the threads of a block as fibers that change over where one has
// to wait for another. The order of blocks and of threads is the caller's choice: a kernel whose result depends on it
// lacks a barrier.

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <ucontext.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_on_cpu {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 32 << 10;

struct Fiber {
    ucontext_t context;
    uint3 index;
    int next;              // in the ring of those that have not ended
    int64_t meetings = 0;  // of its warp, that it has come to
};

struct Warp {
    const char* name = nullptr;  // of the call that its lanes are in
    int arrived = 0;
    int64_t meetings = 0;  // that have happened
    // By parity of the meeting: a lane may come to the next one while others still read the last one's values.
    uint64_t values[2][kWarp];
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    const std::function<void()>* kernel;
    int running;      // index of the fiber
    int before;       // the one before it in the ring
    int arrived = 0;  // at the barrier
    int64_t barriers = 0;
    int waited = 0;  // changes of fibers since something last happened
    std::string error;
    ucontext_t host;
};

int64_t order = 0;
std::unique_ptr<char[]> stacks;
size_t num_stacks = 0;
Block* block = nullptr;

Fiber& running() { return block->fibers[block->running]; }

std::string thread_name() { return "block " + std::to_string(blockIdx.x) + ", thread " + std::to_string(threadIdx.x); }

// Ends the block, from one of its fibers: the host throws. An exception does not fit here, since the address sanitizer
// would look for its handlers on the stack of the host.
void fail(const std::string& what) {
    block->error = what;
    setcontext(&block->host);
}

// Lets the next fiber of the ring run, and comes back when it is this one's turn again.
void change_over() {
    const int self = block->running;
    block->before = self;
    block->running = block->fibers[self].next;
    if (block->running != self) swapcontext(&block->fibers[self].context, &running().context);
    threadIdx = block->fibers[self].index;
}

template <typename Ready>
void wait(const char* name, const Ready& ready) {
    for (; !ready(); ++block->waited) {
        if (block->waited > 2 * static_cast<int>(block->fibers.size())) {
            fail(thread_name() + " waits in " + name + " for threads that never come");
        }
        change_over();
    }
    block->waited = 0;
}

// The life of a fiber. It never returns: the last one to end goes back to the host.
void live() {
    threadIdx = running().index;
    (*block->kernel)();
    block->waited = 0;
    const int next = running().next;
    if (next == block->running) setcontext(&block->host);
    block->fibers[block->before].next = next;
    block->running = next;
    setcontext(&running().context);
}

std::vector<int64_t> permutation(int64_t count, int64_t salt) {
    std::vector<int64_t> numbers(count);
    for (int64_t i = 0; i < count; ++i) numbers[i] = order == 1 ? count - 1 - i : i;
    if (order > 1) {
        std::mt19937_64 random(order + salt);
        std::shuffle(numbers.begin(), numbers.end(), random);
    }
    return numbers;
}

// Apart from the loop over fibers: getcontext may return twice, as far as a compiler knows.
void prepare(ucontext_t& context, char* stack) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, live, 0);
}

void run_block(int threads, const std::function<void()>& kernel) {
    Block own;
    own.fibers.resize(threads);
    own.warps.resize((threads + kWarp - 1) / kWarp);
    own.kernel = &kernel;
    const std::vector<int64_t> sequence = permutation(threads, blockIdx.x);
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = own.fibers[i];
        fiber.index = {static_cast<unsigned int>(i), 0, 0};
        prepare(fiber.context, stacks.get() + i * kStackBytes);
        own.fibers[sequence[i]].next = static_cast<int>(sequence[(i + 1) % threads]);
    }
    own.running = static_cast<int>(sequence[0]);
    own.before = static_cast<int>(sequence[threads - 1]);
    block = &own;
    swapcontext(&own.host, &running().context);
    block = nullptr;
    if (!own.error.empty()) throw std::runtime_error("CUDA on CPU: " + own.error);
}

}  // namespace

const uint64_t* meet_warp(const char* name, unsigned int mask, uint64_t value) {
    Fiber& self = running();
    Warp& warp = block->warps[self.index.x / kWarp];
    if (mask != 0xffffffffu || blockDim.x % kWarp != 0) fail(std::string(name) + " of less than a warp");
    if (warp.arrived > 0 && std::strcmp(warp.name, name) != 0) {
        fail(thread_name() + " is in " + name + " and others of its warp in " + warp.name);
    }
    warp.name = name;
    const uint64_t* values = warp.values[self.meetings % 2];
    warp.values[self.meetings % 2][self.index.x % kWarp] = value;
    ++self.meetings;
    block->waited = 0;
    if (++warp.arrived == kWarp) {
        warp.arrived = 0;
        ++warp.meetings;
    }
    wait(name, [&] { return warp.meetings >= self.meetings; });
    return values;
}

cudaError_t run_grid(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
    if (grid.y != 1 || grid.z != 1 || threads.y != 1 || threads.z != 1) {
        throw std::invalid_argument("CUDA on CPU: a grid of more than one dimension");
    }
    if (grid.x == 0 || grid.x > INT_MAX || threads.x == 0 || threads.x > 1024) return cudaErrorInvalidConfiguration;
    if (threads.x > num_stacks) {
        stacks.reset(new char[threads.x * kStackBytes]);
        num_stacks = threads.x;
    }
    gridDim = grid;
    blockDim = threads;
    for (const int64_t number : permutation(grid.x, -1)) {
        blockIdx = {static_cast<unsigned int>(number), 0, 0};
        run_block(static_cast<int>(threads.x), kernel);
    }
    return cudaSuccess;
}

}  // namespace cuda_on_cpu

void __syncthreads() {
    using cuda_on_cpu::block;
    const int64_t barrier = block->barriers;
    block->waited = 0;
    if (++block->arrived == static_cast<int>(block->fibers.size())) {
        block->arrived = 0;
        ++block->barriers;
    }
    cuda_on_cpu::wait("__syncthreads", [&] { return block->barriers > barrier; });
}

// --- what the launcher asks of torch
// ----------------------------------------------------------------------------------

extern "C" {

// 0: ascending; 1: descending; any other: at random, with this seed.
__attribute__((visibility("default"))) void cuda_on_cpu_order(int64_t order) { cuda_on_cpu::order = order; }

AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
    *stream = nullptr;
    return 0;
}

AOTITorchError aoti_torch_create_device_guard(int32_t, DeviceGuardHandle* guard) {
    *guard = nullptr;
    return 0;
}

AOTITorchError aoti_torch_delete_device_guard(DeviceGuardHandle) { return 0; }

AOTITorchError torch_c10_cuda_check_msg(int32_t error, const char* file, const char*, uint32_t line, bool,
                                        char** text) {
    *text = nullptr;
    if (error != cudaSuccess) {
        const std::string message = "CUDA error " + std::to_string(error) + " at " + file + ":" + std::to_string(line);
        *text = strdup(message.c_str());
    }
    return 0;
}

void torch_c10_cuda_free_error_msg(char* text) { std::free(text); }
}
