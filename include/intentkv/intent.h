// What a client says that a turn is about.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ikv {

/// A stated intent: free text, or the parts of a plan's step, such as an agent's planner has them;
/// both may be given.
struct StatedIntent {
  std::string text;
  std::string name;                                        ///< such as "book_flight"
  std::vector<std::pair<std::string, std::string>> slots;  ///< in the caller's order
  std::string plan_step;

  bool empty() const { return text.empty() && name.empty() && slots.empty() && plan_step.empty(); }
};

}  // namespace ikv
