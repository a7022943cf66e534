#pragma once

namespace seegera::cuda {

// N neighbouring values that are loaded and stored as one, at an address that is a multiple of N * sizeof(T).
template <typename T, int N>
struct alignas(N * sizeof(T)) Vector {
    T lane[N];
};

template <int N, typename T>
__device__ __forceinline__ Vector<T, N> load(const T* address) {
    return *reinterpret_cast<const Vector<T, N>*>(address);
}

template <typename T, int N>
__device__ __forceinline__ void store(T* address, const Vector<T, N>& vector) {
    *reinterpret_cast<Vector<T, N>*>(address) = vector;
}

template <typename T, int N>
__device__ __forceinline__ Vector<T, N> zeros() {
    Vector<T, N> vector;
#pragma unroll
    for (int i = 0; i < N; ++i) vector.lane[i] = T(0);
    return vector;
}

template <typename T, int N>
__device__ __forceinline__ void add(Vector<T, N>& sum, const Vector<T, N>& term) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum.lane[i] += term.lane[i];
}

template <typename T, int N>
__device__ __forceinline__ void multiply_add(Vector<T, N>& sum, T factor, const Vector<T, N>& term) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum.lane[i] += factor * term.lane[i];
}

}  // namespace seegera::cuda
