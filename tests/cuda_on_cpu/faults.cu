// Kernels that do wrong, each in one way that the CPU must notice, and one that does right with all that there is.
// usage: faults CASE ORDER

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

extern "C" void cuda_on_cpu_order(int64_t order);

namespace {

constexpr unsigned int kAll = 0xffffffffu;

struct alignas(16) Four {
    float lane[4];
};

__global__ void read_beyond(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x + 1]; }

__global__ void read_across(const int* from, int* to) {
    to[threadIdx.x] = static_cast<int>(reinterpret_cast<const Four*>(from + 1)[threadIdx.x % 8].lane[0]);
}

__global__ void without_barrier(const int* from, int* to) {
    __shared__ int passed[64];
    passed[threadIdx.x] = from[threadIdx.x];
    to[threadIdx.x] = passed[63 - threadIdx.x];
}

__global__ void with_barrier(const int* from, int* to) {
    __shared__ int passed[64];
    passed[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = passed[63 - threadIdx.x];
}

__global__ void different_calls(const int* from, int* to) {
    to[threadIdx.x] =
        threadIdx.x % 32 < 9 ? __shfl_sync(kAll, from[threadIdx.x], 0) : __shfl_xor_sync(kAll, from[threadIdx.x], 1);
}

__global__ void lane_missing(const int* from, int* to) {
    if (threadIdx.x == 40) return;
    to[threadIdx.x] = __shfl_sync(kAll, from[threadIdx.x], 0);
}

__global__ void thread_missing_at_barrier(const int* from, int* to) {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    to[threadIdx.x] = from[threadIdx.x];
}

__global__ void part_of_a_warp(const int* from, int* to) {
    to[threadIdx.x] = __shfl_sync(0xffffu, from[threadIdx.x], 0);
}

// Each lane: bits that say which of the calls gave what they should.
__global__ void all_calls(const int*, int* to) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t mine = int64_t{lane + 1} << 33 | warp;
    const auto from = [&](int source) { return int64_t{source + 1} << 33 | warp; };
    int right = 0;
    right |= (__shfl_sync(kAll, mine, 5 - lane) == from((5 - lane) & 31)) << 0;
    right |= (__shfl_xor_sync(kAll, mine, 17) == from(lane ^ 17)) << 1;
    right |= (__shfl_up_sync(kAll, mine, 3) == from(lane < 3 ? lane : lane - 3)) << 2;
    right |= (__shfl_down_sync(kAll, mine, 3) == from(lane > 28 ? lane : lane + 3)) << 3;
    right |= (__ballot_sync(kAll, lane % 3 == warp) == (warp == 0 ? 0x49249249u : 0x92492492u)) << 4;
    __syncwarp();
    right |= (__umulhi(0xfffffff0u, 0x10u + lane) == 0xfu + lane) << 5;
    right |= (__popc(0xf0f0u + lane % 2) == 8 + lane % 2) << 6;
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, lane);
    __syncthreads();
    right |= (count == 2 * 496) << 7;
    right |= (blockDim.x == 64 && gridDim.x == 1 && blockIdx.x == 0) << 8;
    to[threadIdx.x] = right;
}

const std::map<std::string, void (*)(const int*, int*)> kCases = {
    {"read beyond", read_beyond},
    {"read across", read_across},
    {"without barrier", without_barrier},
    {"with barrier", with_barrier},
    {"different calls", different_calls},
    {"lane missing", lane_missing},
    {"thread missing at barrier", thread_missing_at_barrier},
    {"part of a warp", part_of_a_warp},
    {"all calls", all_calls},
};

}  // namespace

int main(int, char** arguments) try {
    const std::string name = arguments[1];
    cuda_on_cpu_order(std::atoll(arguments[2]));
    int* from = new int[64];
    int to[64] = {};
    for (int i = 0; i < 64; ++i) from[i] = i;
    cudaLaunchConfig_t grid;
    grid.gridDim = dim3(name == "no blocks" ? 0 : 1);
    grid.blockDim = dim3(64);
    const cudaError_t error = cudaLaunchKernelEx(&grid, name == "no blocks" ? all_calls : kCases.at(name), from, to);
    delete[] from;
    for (const int value : to) std::printf("%d ", value);
    return error;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
