#include "engine/session_store.h"

#include <cstdio>
#include <random>
#include <utility>

namespace ikv {
namespace {

// Names that another tenant cannot guess.
std::string random_name(uint64_t counter) {
  static thread_local std::random_device device;
  char name[64];
  std::snprintf(name, sizeof name, "s-%08x%08x-%llu", device(), device(),
                static_cast<unsigned long long>(counter));
  return name;
}

}  // namespace

SessionStore::~SessionStore() {
  for (auto& [id, record] : records_) drop_sequence(*record);
}

SessionRecord* SessionStore::find(const std::string& id) {
  const auto it = records_.find(id);
  return it == records_.end() ? nullptr : it->second.get();
}

SessionRecord& SessionStore::create(std::string id, KvShareKey key) {
  if (records_.size() >= max_sessions_) {
    if (SessionRecord* oldest = oldest_idle(false)) erase(oldest->id);
  }
  auto record = std::make_unique<SessionRecord>();
  record->named_by_client = !id.empty();
  record->id = id.empty() ? random_name(next_name_++) : std::move(id);
  record->share_key = key;
  touch(*record);
  SessionRecord& reference = *record;
  records_[reference.id] = std::move(record);
  return reference;
}

SessionMatch SessionStore::match_by_content(std::span<const Message> messages,
                                            const TokenizedChat& rendered, KvShareKey key) {
  SessionMatch best;
  for (auto& [id, record] : records_) {
    if (record->busy || record->named_by_client || !(record->share_key == key)) continue;
    TranscriptMatch match = match_transcript(record->transcript, messages, rendered);
    // The template's own text alone (system prompt, tools) is no reason to take a session over; the
    // pool shares such prefixes between sessions anyway.
    if (best.record == nullptr || match.num_common > best.match.num_common) {
      best = {record.get(), std::move(match)};
    }
  }
  const bool continues = best.record != nullptr && !best.match.divergence.has_value();
  if (continues) return best;
  if (best.record != nullptr && best.match.num_common >= pool_.block_tokens()) {
    auto forked = fork(*best.record, "");
    if (forked.ok()) return {*forked, std::move(best.match)};
  }
  SessionRecord& record = create("", key);
  return {&record, match_transcript(record.transcript, messages, rendered)};
}

Result<SessionRecord*> SessionStore::fork(SessionRecord& source, std::string new_id) {
  if (!new_id.empty() && find(new_id) != nullptr) {
    return invalid_argument("session '" + new_id + "' exists already");
  }
  const bool was_busy = std::exchange(source.busy, true);  // keeps create() from forgetting it
  SessionRecord& copy = create(std::move(new_id), source.share_key);
  source.busy = was_busy;
  copy.transcript = source.transcript;
  copy.intent = source.intent;
  if (source.sequence) {
    auto sequence = pool_.fork(*source.sequence, pool_.length(*source.sequence));
    if (!sequence.ok()) {
      erase(copy.id);
      return sequence.error();
    }
    copy.sequence = *sequence;
  }
  return &copy;
}

void SessionStore::erase(const std::string& id) {
  const auto it = records_.find(id);
  if (it == records_.end()) return;
  drop_sequence(*it->second);
  records_.erase(it);
}

bool SessionStore::release_one_idle_sequence() {
  SessionRecord* oldest = oldest_idle(true);
  if (oldest == nullptr) return false;
  drop_sequence(*oldest);
  return true;
}

SessionRecord* SessionStore::oldest_idle(bool with_sequence) {
  SessionRecord* oldest = nullptr;
  for (auto& [id, record] : records_) {
    if (record->busy || (with_sequence && !record->sequence)) continue;
    if (oldest == nullptr || record->last_used < oldest->last_used) oldest = record.get();
  }
  return oldest;
}

void SessionStore::drop_sequence(SessionRecord& record) {
  if (!record.sequence) return;
  on_close_(*record.sequence);
  pool_.close(*record.sequence);
  record.sequence.reset();
}

}  // namespace ikv
