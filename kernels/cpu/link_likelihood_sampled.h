// log p(A | Z) over the links and over drawn negatives: for each row batches of other rows, first multiplied with it,
// then added to its gradient.
//
// Floor: 2 (links + negatives) rows of z read, 4 d operations on each.
//
// Bits: the batches of a row follow one another, in an order that the problem fixes. Nothing depends on the number of
// threads.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "link_likelihood.h"
#include "link_likelihood_negatives.h"

namespace seegera {

// Drawn pairs by rows: both directions, or without a gradient only that from the lower node.
struct Negatives {
    const int64_t* rowptr;
    const int64_t* col;
    double weight;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/math.h"

namespace seegera {
namespace SEEGERA_ISA {

// Other rows that a row is multiplied with at a time: the exponentials of their products are computed as vectors.
constexpr int kBatch = 16;
// Bytes of a row that are prefetched when it joins a batch, which saves 5 to 10 % at d = 512. The processor itself
// prefetches the rest.
constexpr int64_t kFetchBytes = 512;

template <typename T>
struct Batch {
    const T* rows[kBatch];
    T signs[kBatch];  // 1 for softplus(s), -1 for a link's softplus(-s)
    T weights[kBatch];
    int count = 0;
};

// products[k] = left . rows[k] for k in [0, Count).
template <typename T, int Count>
inline void multiply(const T* left, const T* const* rows, int64_t offset, int64_t width, T* products) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    V even[Count] = {}, odd[Count] = {};
    int64_t c = 0;
    for (; c + 2 * lanes <= width; c += 2 * lanes) {
        const V first = load<V>(left + c), second = load<V>(left + c + lanes);
        for (int k = 0; k < Count; ++k) {
            even[k] += first * load<V>(rows[k] + offset + c);
            odd[k] += second * load<V>(rows[k] + offset + c + lanes);
        }
    }
    for (; c < width; c += lanes) {
        const V first = load_part<V>(left + c, width - c);
        for (int k = 0; k < Count; ++k) {
            even[k] += first * load_part<V>(rows[k] + offset + c, width - c);
        }
    }
    for (int k = 0; k < Count; ++k) {
        products[k] = horizontal_sum(even[k] + odd[k]);
    }
}

// target[c] (+)= sum_k factors[k] rows[k][c] over Count vectors of columns, of which the last one may be cut short.
template <typename T, int Count>
inline void combine(const Batch<T>& batch, int64_t offset, const T* factors, bool add, int64_t left, T* target) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    V sum[Count] = {};
    if (add) {
        for (int v = 0; v < Count; ++v) {
            sum[v] = load_part<V>(target + v * lanes, left - v * lanes);
        }
    }
    for (int k = 0; k < batch.count; ++k) {
        for (int v = 0; v < Count; ++v) {
            sum[v] += factors[k] * load_part<V>(batch.rows[k] + offset + v * lanes, left - v * lanes);
        }
    }
    for (int v = 0; v < Count; ++v) {
        store_part(target + v * lanes, sum[v], left - v * lanes);
    }
}

// Adds the terms of a row with those of the batch to values[j], and writes (`first`) or adds their part of its
// gradient.
template <typename T>
void use_batch(const Links<T>& p, int64_t row, Batch<T>& batch, bool first, double* values) {
    using V = Vector<T, kVectorBytes>;
    const T* left = p.z + row * p.row_stride;
    int padded = batch.count;
    for (; padded % kLanes<V> != 0; ++padded) {
        batch.signs[padded] = 1;
        batch.weights[padded] = 0;
    }
    for (int64_t j = 0; j < p.samples; ++j) {
        const int64_t offset = j * p.sample_stride;
        T factors[kBatch] = {};
        int k = 0;
        for (; k + 4 <= batch.count; k += 4) {
            multiply<T, 4>(left + offset, batch.rows + k, offset, p.width, factors + k);
        }
        for (; k < batch.count; ++k) {
            multiply<T, 1>(left + offset, batch.rows + k, offset, p.width, factors + k);
        }
        for (k = 0; k < padded; k += kLanes<V>) {
            const V sign = load<V>(batch.signs + k), weight = load<V>(batch.weights + k);
            V value, slope;
            softplus_sigmoid(load<V>(factors + k) * sign, value, slope);
            values[j] -= horizontal_sum_double(weighted(weight, value));
            // A pair is in the sum in both directions, hence the 2.
            store(factors + k, weighted(weight, slope) * sign * -2);
        }
        if (p.gradient != nullptr) {
            constexpr int block = 8;
            T* target = p.gradient + (j * p.nodes + row) * p.width;
            int64_t c = 0;
            for (; c + block * kLanes<V> <= p.width; c += block * kLanes<V>) {
                combine<T, block>(batch, offset + c, factors, !first, block * kLanes<V>, target + c);
            }
            for (; c < p.width; c += kLanes<V>) {
                combine<T, 1>(batch, offset + c, factors, !first, p.width - c, target + c);
            }
        }
    }
}

// Adds the terms of the rows [row_begin, row_end) to values[j]. Without a gradient a pair is used in the row of its
// lower node, with twice the weight.
template <typename T>
void sampled_rows(const Links<T>& p, const Negatives& negatives, int64_t row_begin, int64_t row_end, double* values) {
    const double directions = p.gradient == nullptr ? 2 : 1;
    const int64_t fetched = p.row_stride * int64_t{sizeof(T)} < kFetchBytes ? p.row_stride * sizeof(T) : kFetchBytes;
    Batch<T> batch;
    for (int64_t row = row_begin; row < row_end; ++row) {
        bool first = true;
        const auto flush = [&] {
            use_batch(p, row, batch, first, values);
            batch.count = 0;
            first = false;
        };
        const auto add = [&](int64_t other, int sign, double weight) {
            // Its numbers may be infinite, and their products with a slope of 0 are none.
            if (weight == 0) {
                return;
            }
            if (batch.count == kBatch) {
                flush();
            }
            const T* source = p.z + other * p.row_stride;
            for (int64_t byte = 0; byte < fetched; byte += kLineBytes) {
                __builtin_prefetch(source + byte / sizeof(T));
            }
            batch.rows[batch.count] = source;
            batch.signs[batch.count] = sign;
            batch.weights[batch.count] = static_cast<T>(weight);
            ++batch.count;
        };
        add(row, -1, p.self_weight);
        for (int64_t e = p.rowptr[row]; e < p.rowptr[row + 1]; ++e) {
            if (p.gradient != nullptr || p.col[e] > row) {
                add(p.col[e], -1, directions * p.link_weight);
            }
        }
        for (int64_t e = negatives.rowptr[row]; e < negatives.rowptr[row + 1]; ++e) {
            add(negatives.col[e], 1, directions * negatives.weight);
        }
        // Every row has a batch that writes its gradient, if need be of no pairs.
        if (first || batch.count > 0) {
            flush();
        }
    }
}

#define SEEGERA_INSTANTIATE(T) template void sampled_rows(const Links<T>&, const Negatives&, int64_t, int64_t, double*);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <algorithm>
#include <vector>

#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T>
                     void sampled_rows(const Links<T>&, const Negatives&, int64_t, int64_t, double*);)

constexpr int64_t kTaskCost = int64_t{1} << 18;  // multiply-adds of a task

template <typename T>
void sampled(const Links<T>& p, const Draws& draws, int64_t count, double* values) {
    const DrawnPairs drawn(draws, count, p.gradient != nullptr);
    const int64_t non_edges = p.nodes * (p.nodes - 1) / 2 - draws.edges;
    const Negatives negatives{drawn.rowptr(), drawn.col(), static_cast<double>(non_edges) / static_cast<double>(count)};

    const int64_t limit = kTaskCost / std::max<int64_t>(1, p.samples * p.width);
    const auto cost_before = [&](int64_t row) { return p.rowptr[row] + negatives.rowptr[row] + row; };
    std::vector<int64_t> starts{0};
    for (int64_t row = 1; row <= p.nodes; ++row) {
        if (row == p.nodes || cost_before(row + 1) - cost_before(starts.back()) > limit) {
            starts.push_back(row);
        }
    }
    const int64_t tasks = static_cast<int64_t>(starts.size()) - 1;
    std::vector<double> partial(tasks * p.samples);
    for_each_task(tasks, [&](int64_t task) {
        SEEGERA_CHOOSE(sampled_rows<T>)(p, negatives, starts[task], starts[task + 1], &partial[task * p.samples]);
    });
    for (size_t i = 0; i < partial.size(); ++i) {
        values[i % p.samples] += partial[i];
    }
}

}  // namespace seegera

#endif
