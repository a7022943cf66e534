// Some rows of a sparse matrix, cut into tasks, for the registration half of a kernel file.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <cstdint>
#include <vector>

namespace seegera {

struct ChosenRows {
    const int64_t* rowptr;
    const int64_t* rows;
    int64_t count;

    int64_t begin(int64_t at) const { return rowptr[rows[at]]; }
    int64_t size(int64_t at) const { return rowptr[rows[at] + 1] - rowptr[rows[at]]; }

    // Asks for a row some rows ahead of `at`, because each is at an address of its own.
    template <typename T>
    void prefetch(const T* numbers, int64_t at) const {
        constexpr int64_t ahead = 8, bytes = 64, most = 4;
        if (at + ahead < count) {
            const int64_t lines = size(at + ahead) * static_cast<int64_t>(sizeof(T)) / bytes + 1;
            const char* row = reinterpret_cast<const char*>(numbers + begin(at + ahead));
            for (int64_t line = 0; line < (lines < most ? lines : most); ++line) {
                __builtin_prefetch(row + bytes * line);
            }
        }
    }

    // The first row of each task, and the number of rows. A task has about `entries` entries, or one row.
    std::vector<int64_t> tasks(int64_t entries) const {
        std::vector<int64_t> starts = {0};
        int64_t cost = 0;
        for (int64_t at = 0; at < count; ++at) {
            cost += size(at) + 1;
            if (cost >= entries || at + 1 == count) {
                starts.push_back(at + 1);
                cost = 0;
            }
        }
        return starts;
    }
};

// Checks that the rows are in [0, total), because a GPU's numbers were not read before they came here.
inline void check_rows(const char* name, const int64_t* rows, int64_t count, int64_t total) {
    for (int64_t at = 0; at < count; ++at) {
        STD_TORCH_CHECK(rows[at] >= 0 && rows[at] < total, name, ": got row ", rows[at], ", want 0 to ", total - 1);
    }
}

}  // namespace seegera
