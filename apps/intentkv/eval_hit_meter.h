// HitMeter: counts, on a lane that keeps everything, what each page policy would have found hot.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "eval_hits.h"

namespace ikv {

/// One lane's meter. Not thread-safe; computes on the lane's threads.
class HitMeter {
 public:
  /// All arguments must outlive this. The lane must observe.
  HitMeter(const Model& model, const KeyCodebooks* codebooks, ThreadPool& threads,
           const ReplayLane& lane, const HitOptions& options);

  /// Names of the policies, in the order of end_turn()'s results.
  std::vector<std::string> names() const;

  void begin_session();
  /// After the lane's prefill of a turn: all policies choose. `measured`: hits will be counted.
  Status begin_turn(bool measured);
  /// After a decode step of the reply: what did it attend to?
  void sample_step();
  /// The turn's hits by policy; empty when it was not measured or nothing was sampled.
  std::vector<std::array<HitShare, kHitBudgets.size()>> end_turn();

 private:
  struct Policy {
    std::string name;
    PagePolicy pages;
    bool oracle = false;
    IntentHistory history;
    PageLists ranked;
  };
  // Of one layer and KV head in this turn, by page.
  struct Wanted {
    std::vector<double> tokens, mass;  // shares, summed over steps
    std::vector<float> last_step;      // position of the last step that wanted the page
  };
  struct Head {
    int layer = 0;
    int kv_head = 0;
  };
  void add_policy(std::string name, std::string_view scorer, IntentChoice intent);
  void sample_head(const Head& head, const IntentQueries& query, Wanted& wanted) const;
  PageLists wanted_mass() const;
  HitShare count_hits(const PageLists& ranked, double budget) const;
  std::vector<uint8_t> choose_hot(const std::vector<float>& ranked, double budget) const;
  bool pinned(size_t page) const;

  const Model& model_;
  const KeyCodebooks* codebooks_;
  ThreadPool& threads_;
  const ReplayLane& lane_;
  HitOptions options_;
  std::vector<Policy> policies_;
  std::vector<Head> heads_;
  std::vector<Wanted> wanted_;  // by head
  size_t num_pages_ = 0;        // sealed when the turn began
  int num_samples_ = 0;
  bool measured_ = false;
};

}  // namespace ikv
