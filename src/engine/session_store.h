// The engine's sessions: transcripts with the pool sequences that hold their keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/turn_intent.h"
#include "kv/kv_pool.h"
#include "session/transcript.h"

namespace ikv {

/// One session. The sequence may be gone (its memory was needed) while the transcript stays; it is
/// then evaluated again as far as no idle prefix serves.
struct SessionRecord {
  std::string id;
  bool named_by_client = false;  ///< found by id only; anonymous ones are found by content
  KvShareKey share_key;
  Transcript transcript;
  std::optional<KvSequenceId> sequence;
  IntentHistory intent;  ///< what level 1 remembers of earlier turns
  bool busy = false;
  uint64_t last_used = 0;  ///< logical time
};

/// Where a conversation goes on: the record to use and how much of it stands.
struct SessionMatch {
  SessionRecord* record = nullptr;
  TranscriptMatch match;
};

/// All sessions of an engine. Engine's thread only. At most `max_sessions`; the least recently used
/// idle one is forgotten for a new one.
class SessionStore {
 public:
  /// `on_close` hears of every sequence that is given up.
  SessionStore(KvPool& pool, size_t max_sessions, std::function<void(KvSequenceId)> on_close)
      : pool_(pool), max_sessions_(max_sessions), on_close_(std::move(on_close)) {}
  ~SessionStore();

  SessionRecord* find(const std::string& id);
  /// A new empty session; an empty id gets one made up.
  SessionRecord& create(std::string id, KvShareKey key);

  /// The session for an anonymous request: the idle anonymous one that shares the longest prefix,
  /// taken over when the conversation continues it, else a fork of it (pages shared); a new one
  /// when nothing serves.
  SessionMatch match_by_content(std::span<const Message> messages, const TokenizedChat& rendered,
                                KvShareKey key);

  /// Copies a session under a new id. Errors: kOutOfMemory, kInvalidArgument (id taken).
  Result<SessionRecord*> fork(SessionRecord& source, std::string new_id);

  /// Forgets a session that is not busy.
  void erase(const std::string& id);

  /// Gives up the sequence of the least recently used idle session; false when there is none.
  bool release_one_idle_sequence();

  /// Gives up a session's keys and values; its transcript stays.
  void drop_sequence(SessionRecord& record);

  void touch(SessionRecord& record) { record.last_used = ++clock_; }
  const std::unordered_map<std::string, std::unique_ptr<SessionRecord>>& all() const {
    return records_;
  }

 private:
  SessionRecord* oldest_idle(bool with_sequence);

  KvPool& pool_;
  const size_t max_sessions_;
  std::function<void(KvSequenceId)> on_close_;
  uint64_t clock_ = 0;
  uint64_t next_name_ = 0;
  std::unordered_map<std::string, std::unique_ptr<SessionRecord>> records_;
};

}  // namespace ikv
