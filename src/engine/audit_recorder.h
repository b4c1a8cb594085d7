// What one generation notes for its audit while it runs, and the audit made of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tokenized_chat.h"
#include "engine/audit_counter.h"
#include "engine/kv_policy.h"
#include "engine/residency.h"
#include "intentkv/audit.h"
#include "kv/kv_pool.h"

namespace ikv {

/// Notes of one generation whose request asked for an audit. Engine's thread only, but for the
/// counter.
class AuditRecorder {
 public:
  AttendCounter& counter() { return counter_; }
  /// Where a decision of level 1 notes its reasons, by block.
  std::vector<AuditReasons>& reasons() { return reasons_; }
  void note_step() { ++num_steps_; }
  /// The attention by block of the turn's last queries.
  void note_mass(const std::vector<std::vector<float>>& mass);

  /// Fills all but `usage`, ids and turn. `chat`: prompt and reply, of which the sequence holds the
  /// first `length(sequence)` tokens.
  TurnAudit make_audit(const KvPool& pool, KvSequenceId sequence, const KvPolicy& policy,
                       const TokenizedChat& chat) const;

 private:
  void add_blocks(const KvPool& pool, KvSequenceId sequence, TurnAudit& audit) const;

  AttendCounter counter_;
  std::vector<AuditReasons> reasons_;
  std::vector<double> mass_;  ///< by block, sums to 1
  int32_t num_steps_ = 0;
};

}  // namespace ikv
