// What the forms of link_likelihood share: the problem.
#pragma once

#include <cstdint>

namespace seegera {

template <typename T>
struct Links {
    const T* z;
    int64_t nodes;
    int64_t samples;
    int64_t width;
    int64_t row_stride;
    int64_t sample_stride;
    const int64_t* rowptr;
    const int64_t* col;
    double link_weight;
    double self_weight;
    T* gradient;  // [samples, nodes, width]; null where it is not computed
};

}  // namespace seegera
