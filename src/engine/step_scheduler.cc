#include "engine/step_scheduler.h"

#include <algorithm>

namespace ikv {

StepPlan StepScheduler::plan(std::span<const SchedulableRequest> requests) {
  StepPlan plan;
  plan.num_tokens.assign(requests.size(), 0);
  std::vector<size_t> prefilling;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].decoding) {
      plan.num_tokens[i] = 1;
      ++plan.total_tokens;
    } else if (requests[i].num_prompt_tokens_left > 0) {
      prefilling.push_back(i);
    }
  }
  if (prefilling.empty()) return plan;
  std::rotate(prefilling.begin(),
              prefilling.begin() + static_cast<std::ptrdiff_t>(rotation_++ % prefilling.size()),
              prefilling.end());
  // Water-filling: short prompts return what they do not need to the others.
  int32_t budget = chunk_tokens_;
  std::vector<size_t> hungry = prefilling;
  while (budget > 0 && !hungry.empty()) {
    const int32_t share = std::max<int32_t>(1, budget / static_cast<int32_t>(hungry.size()));
    std::vector<size_t> still_hungry;
    for (const size_t i : hungry) {
      const int32_t wanted = requests[i].num_prompt_tokens_left - plan.num_tokens[i];
      const int32_t given = std::min({share, wanted, budget});
      plan.num_tokens[i] += given;
      plan.total_tokens += given;
      budget -= given;
      if (given < wanted) still_hungry.push_back(i);
    }
    hungry = std::move(still_hungry);
  }
  return plan;
}

}  // namespace ikv
