#include "sampling/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace ikv {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (size_t s = 0; s < stops.size(); ++s) {
    if (stops[s].empty()) continue;
    Automaton automaton;
    automaton.pattern = stops[s];
    automaton.index = static_cast<int>(s);
    automaton.fallback.assign(stops[s].size(), 0);
    for (size_t i = 1; i < stops[s].size(); ++i) {
      int32_t border = automaton.fallback[i - 1];
      while (border > 0 && stops[s][i] != stops[s][static_cast<size_t>(border)]) {
        border = automaton.fallback[static_cast<size_t>(border) - 1];
      }
      automaton.fallback[i] =
          border + (stops[s][i] == stops[s][static_cast<size_t>(border)] ? 1 : 0);
    }
    automata_.push_back(std::move(automaton));
  }
  // Longest first, so that the first automaton to complete at a byte is the one that cuts most.
  std::stable_sort(automata_.begin(), automata_.end(), [](const Automaton& a, const Automaton& b) {
    return a.pattern.size() > b.pattern.size();
  });
}

bool StopMatcher::advance(char byte) {
  for (Automaton& a : automata_) {
    while (a.length > 0 && a.pattern[static_cast<size_t>(a.length)] != byte) {
      a.length = a.fallback[static_cast<size_t>(a.length) - 1];
    }
    if (a.pattern[static_cast<size_t>(a.length)] == byte) ++a.length;
    // On a full match all matching ends, so `length` never indexes past the pattern.
    if (static_cast<size_t>(a.length) == a.pattern.size()) {
      matched_ = a.index;
      held_.resize(held_.size() - a.pattern.size());
      return true;
    }
  }
  return false;
}

std::string StopMatcher::feed(std::string_view piece) {
  if (stopped()) return {};
  for (const char byte : piece) {
    held_.push_back(byte);
    if (advance(byte)) return std::exchange(held_, {});
  }
  size_t num_held = 0;
  for (const Automaton& a : automata_) num_held = std::max(num_held, static_cast<size_t>(a.length));
  std::string shown = held_.substr(0, held_.size() - num_held);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::finish() {
  for (Automaton& a : automata_) a.length = 0;
  return std::exchange(held_, {});
}

}  // namespace ikv
