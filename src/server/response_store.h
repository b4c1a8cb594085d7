// The conversations behind responses, for previous_response_id.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "intentkv/message.h"

namespace ikv {

/// Keeps the most recently used conversations within a bound of bytes. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Remembers a conversation under `id`; older ones go when there is no room.
  void put(const std::string& id, std::vector<Message> messages);
  std::optional<std::vector<Message>> find(const std::string& id);

 private:
  struct Entry {
    std::string id;
    std::vector<Message> messages;
    size_t bytes = 0;
  };

  const size_t max_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  ///< most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace ikv
