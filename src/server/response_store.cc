#include "server/response_store.h"

#include <utility>

namespace ikv {
namespace {

size_t size_of(const std::vector<Message>& messages) {
  size_t bytes = 0;
  for (const Message& message : messages) {
    bytes += sizeof(Message) + message.name.size() + message.tool_call_id.size();
    if (message.content) bytes += message.content->size();
    for (const ToolCall& call : message.tool_calls) {
      bytes += sizeof(ToolCall) + call.id.size() + call.name.size() + call.arguments_json.size();
    }
  }
  return bytes;
}

}  // namespace

void ResponseStore::put(const std::string& id, std::vector<Message> messages) {
  const size_t bytes = size_of(messages);
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || by_id_.contains(id)) return;
  while (bytes_ + bytes > max_bytes_) {
    bytes_ -= entries_.back().bytes;
    by_id_.erase(entries_.back().id);
    entries_.pop_back();
  }
  entries_.push_front({id, std::move(messages), bytes});
  by_id_[id] = entries_.begin();
  bytes_ += bytes;
}

std::optional<std::vector<Message>> ResponseStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->messages;
}

}  // namespace ikv
