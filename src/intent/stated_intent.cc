#include "intent/stated_intent.h"

namespace ikv {

Result<std::string> intent_text(const StatedIntent& intent) {
  std::string text = intent.text;
  const auto line = [&](const std::string& label, const std::string& value) {
    if (!text.empty()) text += '\n';
    text += label + ": " + value;
  };
  if (!intent.name.empty()) line("Intent", intent.name);
  for (const auto& [name, value] : intent.slots) {
    if (name.empty()) return invalid_argument("stated intent: a slot has no name");
    line(name, value);
  }
  if (!intent.plan_step.empty()) line("Step", intent.plan_step);
  if (text.empty()) {
    return invalid_argument("stated intent: give a text, a name, slots or a plan_step");
  }
  if (text.size() > kMaxStatedIntentBytes) {
    return invalid_argument("stated intent: " + std::to_string(text.size()) + " bytes, at most " +
                            std::to_string(kMaxStatedIntentBytes));
  }
  return text;
}

}  // namespace ikv
