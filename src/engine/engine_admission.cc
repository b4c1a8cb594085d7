// From the queue to a running request: which session, which tokens, which memory.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/engine_impl.h"

namespace ikv {
namespace {

// Promised at first to a reply whose length nobody bounded; more is promised as it grows.
constexpr int32_t kFirstPromise = 256;

}  // namespace

void EngineImpl::admit() {
  std::vector<RequestPtr> passed_over;  // in order; their sessions are busy
  while (running_.size() < static_cast<size_t>(parts_.config.max_parallel)) {
    RequestPtr request;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) break;
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const bool session_waits =
        !request->session_key.empty() &&
        std::any_of(passed_over.begin(), passed_over.end(), [&](const RequestPtr& other) {
          return other->session_key == request->session_key;
        });
    const SessionRecord* named =
        request->session_key.empty() ? nullptr : sessions_.find(request->session_key);
    if (session_waits || (named != nullptr && named->busy)) {
      passed_over.push_back(std::move(request));
      continue;
    }
    const Admission admission = try_admit(*request);
    if (admission == Admission::kAdmitted) {
      running_.push_back(std::move(request));
    } else if (admission == Admission::kWait) {
      // First come, first served: nobody behind may take the memory that this one waits for.
      passed_over.push_back(std::move(request));
      break;
    }
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = passed_over.size(); i-- > 0;) waiting_.push_front(std::move(passed_over[i]));
}

EngineImpl::Admission EngineImpl::try_admit(RunningRequest& request) {
  int32_t num_common = 0;
  if (request.is_chat) {
    SessionMatch found;
    if (request.session_key.empty()) {
      found = sessions_.match_by_content(request.messages, request.prompt, request.share_key);
    } else {
      SessionRecord* record = sessions_.find(request.session_key);
      if (record == nullptr) record = &sessions_.create(request.session_key, request.share_key);
      found = {record, match_transcript(record->transcript, request.messages, request.prompt)};
    }
    request.record = found.record;
    request.record->busy = true;
    sessions_.touch(*request.record);
    num_common = found.match.num_common;
    request.prompt = std::move(found.match.chat);
    if (found.match.divergence) {
      request.usage.divergences.push_back(std::move(*found.match.divergence));
    }
    const Status fits = check_length(request);
    if (!fits.ok()) {
      fail(request, fits.error());
      return Admission::kRefused;
    }
  }
  const Status prepared = prepare_sequence(request, num_common);
  if (!prepared.ok()) {
    if (running_.empty()) {
      fail(request, prepared.error());
      return Admission::kRefused;
    }
    undo_admission(request);
    return Admission::kWait;
  }
  return promise_memory(request);
}

Status EngineImpl::prepare_sequence(RunningRequest& request, int32_t num_common) {
  KvPool& pool = *parts_.pool;
  // The last prompt token is always evaluated: its logits begin the reply.
  const std::span<const TokenId> reusable =
      std::span<const TokenId>(request.prompt.tokens).first(request.prompt.tokens.size() - 1);
  const auto limit = static_cast<int32_t>(reusable.size());
  int32_t kept = 0;
  if (request.record != nullptr && request.record->sequence) {
    kept = pool.truncate(*request.record->sequence,
                         std::min({num_common, limit, pool.length(*request.record->sequence)}));
  }
  const int32_t stored = pool.match(reusable, request.share_key);
  if (request.record != nullptr && request.record->sequence && stored > kept) {
    sessions_.drop_sequence(*request.record);
  }
  if (request.record != nullptr && request.record->sequence) {
    request.sequence = *request.record->sequence;
  } else {
    auto sequence = pool.open(request.share_key);
    while (!sequence.ok() && sessions_.release_one_idle_sequence()) {
      sequence = pool.open(request.share_key);
    }
    if (!sequence.ok()) return sequence.error();
    request.sequence = *sequence;
    if (request.record != nullptr) request.record->sequence = request.sequence;
    auto adopted = pool.adopt(request.sequence, reusable);
    kept = adopted.ok() ? *adopted : 0;
  }
  request.has_sequence = true;
  request.num_evaluated = kept;
  request.usage.prompt_tokens = request.num_prompt_tokens();
  request.usage.cached_tokens = kept;
  request.usage.evaluated_tokens = request.num_prompt_tokens() - kept;
  if (request.record != nullptr) {
    request.record->transcript = {request.messages, request.prompt};
  }
  return {};
}

EngineImpl::Admission EngineImpl::promise_memory(RunningRequest& request) {
  const int32_t context = parts_.config.context_tokens;
  const int32_t prompt = request.num_prompt_tokens();
  request.wanted_tokens =
      request.max_tokens < 0 ? context : std::min(context, prompt + request.max_tokens);
  const int32_t first =
      request.max_tokens < 0 ? std::min(context, prompt + kFirstPromise) : request.wanted_tokens;
  Status status = promise_with_reclaim(request, first);
  if (status.ok()) {
    request.limit_tokens = first;
    request.reply->accept_prompt(request.prompt.tokens);
    stats_.prompt_tokens_cached += static_cast<uint64_t>(request.usage.cached_tokens);
    return Admission::kAdmitted;
  }
  if (running_.empty()) {
    ++requests_refused_;
    fail(request, status.error());
    return Admission::kRefused;
  }
  undo_admission(request);
  return Admission::kWait;
}

Status EngineImpl::promise_with_reclaim(RunningRequest& request, int32_t num_tokens) {
  while (true) {
    Status status = parts_.pool->promise(request.sequence, num_tokens);
    if (status.ok()) return status;
    if (!sessions_.release_one_idle_sequence()) return status;
  }
}

void EngineImpl::undo_admission(RunningRequest& request) {
  // The rendered prompt, now laid over the transcript, is laid over it again next time.
  release(request);
  request.record = nullptr;
  request.has_sequence = false;
  request.usage.divergences.clear();
}

}  // namespace ikv
