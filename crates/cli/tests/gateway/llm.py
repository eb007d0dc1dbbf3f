"""The official clients of OpenAI and Anthropic through a gateway: `llm.py API URL`."""

import sys

import anthropic
import openai

api, url = sys.argv[1:]
messages = [{"role": "user", "content": "Name a river."}]
call = {"model": "gpt-4o-mini", "messages": messages, "max_tokens": 50}


def run_openai():
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", default_headers={"x-team": "small"})
    chat = client.chat.completions
    assert chat.create(**call).usage.completion_tokens == 20
    text, chunks = "", 0
    for chunk in chat.create(**call, stream=True):
        assert chunk.usage is None
        text += chunk.choices[0].delta.content or ""
    assert text == "word " * 20, text
    raw = chat.with_raw_response.create(**call | {"max_tokens": 5})
    assert raw.headers["x-ratelimit-remaining-tokens"].isdigit()
    try:
        chat.create(**call)
    except openai.RateLimitError as denied:
        assert denied.code == "insufficient_quota" and denied.status_code == 429
    # A budget that is used up in mid-stream.
    ending = client.with_options(default_headers={"x-team": "ended", "x-do": "tokens=100000"})
    stream = ending.chat.completions.create(**call | {"max_tokens": 5}, stream=True)
    reasons = [chunk.choices[0].finish_reason for chunk in stream]
    assert 50 < len(reasons) < 200 and reasons[-1] == "length", reasons


def run_anthropic():
    client = anthropic.Anthropic(base_url=url, api_key="none", default_headers={"x-team": "small"})
    assert client.messages.create(**call).usage.output_tokens == 20
    with client.messages.stream(**call) as stream:
        assert stream.get_final_text() == "word " * 20
    try:
        client.messages.create(**call)
        raise AssertionError("it passes")
    except anthropic.RateLimitError as denied:
        assert denied.status_code == 429
    ending = client.with_options(default_headers={"x-team": "ended", "x-do": "tokens=100000"})
    with ending.messages.stream(**call | {"max_tokens": 5}) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "max_tokens", message


{"openai": run_openai, "anthropic": run_anthropic}[api]()
print("ok")
