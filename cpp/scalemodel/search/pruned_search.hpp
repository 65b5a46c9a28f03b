// A search that evaluates only groups of strategies whose bounds are not worse than what was found.
#pragma once

#include <vector>

#include "scalemodel/search/search_worker.hpp"

namespace scalemodel {

/// Judges the rows of a range into `workers`, of which the pool has one per thread. False: stopped.
bool search_with_bounds(const Enumeration& space, RowRange rows, const SearchOptions& options,
                        ThreadPool& pool, std::vector<SearchWorker>& workers);

}  // namespace scalemodel
