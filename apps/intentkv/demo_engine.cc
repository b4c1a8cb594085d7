#include "demo_engine.h"

#include <utility>

#include "base/result.h"
#include "intentkv/engine.h"

namespace ikv {

Result<DemoRun> play_session(const EngineConfig& config, const Conversation& session,
                             int max_tokens) {
  IKV_ASSIGN_OR_RETURN(const auto engine, Engine::create(config));
  const std::vector<Message>& messages = session.messages;
  DemoRun run;
  for (size_t i = 1; i <= messages.size(); ++i) {
    const bool last = i == messages.size();
    if (!last && messages[i].role != Role::kAssistant) continue;
    ChatRequest request;
    request.messages.assign(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(i));
    request.tools_json = session.tools_json;
    request.session_id = "demo";
    request.generation.temperature = 0;
    request.generation.max_tokens = last ? max_tokens : 0;  // 0: the recorded reply comes next
    request.audit = last;
    IKV_ASSIGN_OR_RETURN(const auto generation, engine->chat(std::move(request)));
    IKV_ASSIGN_OR_RETURN(GenerationResult result, generation->wait());
    ++run.num_turns;
    run.sent_tokens += result.usage.prompt_tokens;
    run.evaluated_tokens += result.usage.evaluated_tokens;
    if (!last) continue;
    run.reply_us = result.usage.decode_us;
    run.reply_tokens = result.usage.completion_tokens;
    run.answer = std::move(result.text);
    run.audit = std::move(result.audit);
  }
  return run;
}

}  // namespace ikv
