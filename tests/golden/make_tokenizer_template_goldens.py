"""Makes tokenizer_templates.json: what Python's Jinja2, set up as the transformers library does, renders
for templates in the manner of well-known models.

    python make_tokenizer_template_goldens.py --model smollm2.gguf

The templates are written for this test; they use the constructs that real ones use. Of the model's own
template only the results are kept ("model_cases"). Needs: jinja2, gguf.
"""

import argparse
import json
import pathlib

import gguf
import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent

CHATML_DEFAULT_SYSTEM = """\
{%- for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are a test.<|im_end|>\\n' }}{% endif %}\
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN_LIKE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are helpful.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Strips the thoughts of earlier replies, looks at how contents start, walks backwards.
THINKING = """\
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.seen = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

GEMMA_LIKE = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

LLAMA3_LIKE = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "Functions:\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

INST = """\
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system is defined %}
            {{- ' [INST] <<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] | trim + ' ' + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}
"""

TEMPLATES = {
    "chatml_default_system": CHATML_DEFAULT_SYSTEM,
    "qwen_like": QWEN_LIKE,
    "thinking": THINKING,
    "gemma_like": GEMMA_LIKE,
    "llama3_like": LLAMA3_LIKE,
    "inst": INST,
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Today's weather <in> a \"city\" & more: é 你好",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.0}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {}}},
]


def call(name, arguments, identifier="call00001"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "turns": [
        {"role": "user", "content": "What is 2+2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And\nthree\n\nlines?"},
    ],
    "spaces": [
        {"role": "user", "content": "  padded \n"},
        {"role": "assistant", "content": "\n\nanswer  "},
        {"role": "user", "content": "\tx"},
    ],
    "unicode": [{"role": "user", "content": "你好 😀 é <b>&amp;</b> \"q\" 'q'"}],
    "thoughts": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nBecause."},
        {"role": "user", "content": "<tool_response>x</tool_response>"},
        {"role": "assistant", "content": "<think>y</think>z"},
    ],
    "empty": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": "x"}],
    "tools": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Zürich?"},
        {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Zürich", "days": 2})]},
        {"role": "tool", "name": "get_weather", "content": "{\"t\": 21.5}", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "21.5 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
    "two_calls": [
        {"role": "user", "content": "Both"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [call("now", {}), call("get_weather", {"city": "A", "x": [1, None, True, 1e-7]}, "call00002")],
        },
        {"role": "tool", "name": "now", "content": "12:00", "tool_call_id": "call00001"},
        {"role": "tool", "name": "get_weather", "content": "rain", "tool_call_id": "call00002"},
    ],
}


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def render_cases(env, template_name, source, all_tools):
    template = env.from_string(source)
    for conversation_name, messages in CONVERSATIONS.items():
        for add_generation_prompt in (True, False):
            for tools in all_tools:
                context = {
                    "messages": messages,
                    "tools": tools,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                    "bos_token": "<|begin|>",
                    "eos_token": "<|end|>",
                    "enable_thinking": False,
                }
                case = {"template": template_name, "conversation": conversation_name,
                        "tools": tools is not None, "add_generation_prompt": add_generation_prompt}
                try:
                    case["text"] = template.render(**context)
                except jinja2.exceptions.TemplateError as error:
                    case["raised"] = str(error)
                yield case


def model_template(path):
    field = gguf.GGUFReader(path).fields["tokenizer.chat_template"]
    return bytes(field.parts[field.data[0]]).decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    env = environment()
    cases = [case for name, source in TEMPLATES.items() for case in render_cases(env, name, source, (None, TOOLS))]
    model_cases = list(render_cases(env, "smollm2", model_template(args.model), (None,)))
    out = {"templates": TEMPLATES, "tools": TOOLS, "conversations": CONVERSATIONS, "cases": cases,
           "model_cases": model_cases}
    path = HERE / "tokenizer_templates.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(path.name, path.stat().st_size, "bytes,", len(cases), "cases")


if __name__ == "__main__":
    main()
