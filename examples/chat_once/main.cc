// Two turns of one session through the C++ API: chat_once MODEL.gguf "first message" "second".
#include <intentkv/engine.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

int fail(const ikv::Error& error) {
  std::fprintf(stderr, "chat_once: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: chat_once MODEL.gguf MESSAGE...\n");
    return 2;
  }
  ikv::EngineConfig config;
  config.model_path = argv[1];
  auto engine = ikv::Engine::create(config);
  if (!engine.ok()) return fail(engine.error());

  ikv::Session session(*engine.value(), "example");
  ikv::GenerationConfig generation;
  generation.temperature = 0;
  generation.max_tokens = 32;
  std::vector<ikv::Message> messages;
  for (int i = 2; i < argc; ++i) {
    ikv::Message message;
    message.content = argv[i];
    messages.push_back(std::move(message));
    auto reply = session.chat(messages, generation);
    if (!reply.ok()) return fail(reply.error());
    while (true) {  // the text as it comes
      auto event = (*reply)->next();
      if (!event.ok()) return fail(event.error());
      std::fputs(event->text.c_str(), stdout);
      if (event->finished) break;
    }
    auto result = (*reply)->wait();
    if (!result.ok()) return fail(result.error());
    std::printf("\n[%d prompt tokens, %d of them from the cache]\n", result->usage.prompt_tokens,
                result->usage.cached_tokens);
    messages.push_back(result->message);
  }
  return 0;
}
