# ruff: noqa: E501
"""Small chat templates in the styles of five model families, with tokenizers."""

import functools
import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

_TEXTS = ["The assistant answers the user's question about the weather in Paris.", "Let me think: 2 + 2 = 4.\n\nSo the"]
_TEXTS += [
    '{"name": "lookup", "arguments": {"word": "moon", "limit": 5}}',
    "def f(x):\n    return x + 1\n",
    "système naïf",
]

CHATML = """
{%- if not messages or messages[0].role != 'system' %}{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}
{%- if tools %}{{- '<|im_start|>tools\\n' + tools | tojson + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
        {{- message['content'] }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>' + call.function | tojson + '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- message['content'] + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA = """
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{% endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools is not none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\nRespond in JSON for a call.\\n\\n' -}}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{% endfor %}
    {{- first_user_message + "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
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
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""

QWEN = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{% endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{% endif %}
                {%- if tool_call.function %}{% set tool_call = tool_call.function %}{% endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""

NEMOTRON = """
{%- macro render_tool(tool) %}
    {%- set tool = tool.function if tool.function is defined else tool %}
    {{- "\\n<function>\\n<name>" ~ tool.name ~ "</name>" }}
    {%- for name, fields in ((tool.parameters or {}).properties or {}) | items %}
        {{- '\\n<parameter>' ~ name ~ ': ' ~ (fields | tojson | safe if fields is mapping else fields | string) ~ '</parameter>' }}
    {%- endfor %}
    {{- "\\n</function>" }}
{%- endmacro %}
{%- set ns = namespace(last_user_idx=-1) %}
{%- set loop_messages = messages[1:] if messages[0]["role"] == "system" else messages %}
{%- for m in loop_messages %}{% if m["role"] == "user" %}{% set ns.last_user_idx = loop.index0 %}{% endif %}{% endfor %}
{{- "<|im_start|>system\\n" }}
{%- if messages[0]["role"] == "system" %}{{- messages[0]["content"] }}{% endif %}
{%- if tools is iterable and tools | length > 0 %}
    {{- "\\n\\n<tools>" }}
    {%- for tool in tools %}{{- render_tool(tool) }}{% endfor %}
    {{- "\\n</tools>" }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in loop_messages %}
    {%- if message.role == "assistant" %}
        {%- if message.reasoning_content is defined and message.reasoning_content is string and message.reasoning_content | trim | length > 0 %}
            {%- set content = "<think>\\n" ~ message.reasoning_content ~ "\\n</think>\\n" ~ (message.content | default('', true)) %}
        {%- else %}
            {%- set content = message.content | default('', true) %}
            {%- if content is string %}
                {%- if '<think>' not in content and '</think>' not in content %}{% set content = "<think></think>" ~ content %}{% endif %}
            {%- else %}{% set content = content | string %}{% endif %}
        {%- endif %}
        {%- if message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
            {{- '<|im_start|>assistant\\n' }}
            {%- set include_content = not (loop.index0 < ns.last_user_idx) %}
            {%- if content is string and content | trim | length > 0 %}
                {%- if include_content %}{{- (content | trim) ~ '\\n' -}}
                {%- else %}
                    {%- set c = content | string %}
                    {%- if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}
                    {{- "<think></think>" ~ c | trim ~ '\\n' }}
                {%- endif %}
            {%- endif %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}{% set tool_call = tool_call.function %}{% endif %}
                {{- '<tool_call>\\n<function=' ~ tool_call.name ~ '>\\n' -}}
                {%- if tool_call.arguments is defined %}
                    {%- for args_name, args_value in tool_call.arguments | items %}
                        {{- '<parameter=' ~ args_name ~ '>\\n' -}}
                        {%- set args_value = args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string %}
                        {{- args_value ~ '\\n</parameter>\\n' -}}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\\n</tool_call>\\n' -}}
            {%- endfor %}
            {{- '<|im_end|>\\n' }}
        {%- elif not (loop.index0 < ns.last_user_idx) %}
            {{- '<|im_start|>assistant\\n' ~ (content | default('', true) | string | trim) ~ '<|im_end|>\\n' }}
        {%- else %}
            {%- set c = content | default('', true) | string %}
            {%- if '<think>' in c and '</think>' in c %}{% set c = "<think></think>" ~ c.split('</think>')[-1] %}{% endif %}
            {{- '<|im_start|>assistant\\n' ~ c | trim ~ '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif message.role == "user" or message.role == "system" %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content | string) ~ '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user\\n' }}{% endif %}
        {{- '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>\\n' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}
        {%- elif loop.last %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{% endif %}
"""

GPT_OSS = """
{%- macro build_system_message() -%}
    {{- "You are a language model.\\nCurrent date: " + strftime_now("%Y-%m-%d") + "\\n\\n" }}
    {{- "Reasoning: " + (reasoning_effort if reasoning_effort is defined else "medium") + "\\n\\n" }}
    {{- "# Valid channels: analysis, commentary, final." }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- build_system_message() }}{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer_message = messages[0].content %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set developer_message = "" %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if developer_message or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if developer_message %}{{- "# Instructions\\n\\n" }}{{- developer_message }}{{- "\\n\\n" }}{% endif %}
    {%- if tools -%}{{- "# Tools\\n\\n" }}{% for tool in tools %}{{- "type " + tool.function.name + " = any;\\n" }}{% endfor %}{% endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and ("<|channel|>analysis<|message|>" in message.content or "<|channel|>final<|message|>" in message.content) %}
            {{- raise_exception("You have passed a message containing <|channel|> tags in the content field.") }}
        {%- endif %}
        {%- if "tool_calls" in message %}
            {%- set future_final_message = namespace(found=false) %}
            {%- for future_message in loop_messages[loop.index:] %}
                {%- if future_message.role == 'assistant' and "tool_calls" not in future_message %}
                    {%- set future_final_message.found = true %}
                {%- endif %}
            {%- endfor %}
            {%- set tool_call = message.tool_calls[0] %}
            {%- if tool_call.function %}{% set tool_call = tool_call.function %}{% endif %}
            {%- if message.content and message.thinking %}
                {{- raise_exception("Cannot pass both content and thinking in an assistant message with tool calls!") }}
            {%- elif message.content and not future_final_message.found %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.content + "<|end|>" }}
            {%- elif message.thinking and not future_final_message.found %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant to=" }}
            {{- "functions." + tool_call.name + "<|channel|>commentary " }}
            {{- (tool_call.content_type if tool_call.content_type is defined else "json") + "<|message|>" }}
            {{- tool_call.arguments | tojson }}
            {{- "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}
            {{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}
        {%- endif %}
        {{- "<|start|>functions." + last_tool_call.name }}
        {{- " to=assistant<|channel|>commentary<|message|>" + message.content | tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""

_IM, _CALLS = ("<|im_start|>", "<|im_end|>"), ("<tool_call>", "</tool_call>")
# By family: source, special tokens, other added tokens.
FAMILIES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "chatml": (CHATML, _IM, ()),
    "llama": (LLAMA, ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), ()),
    "qwen": (QWEN, _IM, ("<think>", "</think>", *_CALLS)),
    "nemotron": (NEMOTRON, _IM, ("<think>", "</think>", *_CALLS)),
    "gpt_oss": (
        GPT_OSS,
        tuple(f"<|{n}|>" for n in ["start", "end", "message", "channel", "constrain", "return", "call"]),
        (),
    ),
}


@functools.cache
def _trained(special: tuple[str, ...], added: tuple[str, ...]) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_TEXTS * 20, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in added])
    return str(tokenizer.to_str())


def save_chat_model(folder: Path, family: str, *, as_file: bool = True, **config: Any) -> Path:
    """Save a family's tokenizer and template, in a file of its own or in the config."""
    source, special, added = FAMILIES[family]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(_trained(special, added))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": special[0]}
    settings |= {"eos_token": {"content": special[-1], "__type": "AddedToken", "special": True}}
    if as_file:
        (folder / "chat_template.jinja").write_text(source)
    else:
        settings["chat_template"] = source
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | config))
    return folder
