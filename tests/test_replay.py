"""Recorded conversations: read from what clients write, sent as recorded, and nothing kept."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SCRIPTED, Tree
from twoturn import article, cells, claims, config, contrasts, measure, replay, tokens, workloads
from twoturn import tool_templates as templates
from twoturn.errors import UserError
from twoturn.messages import as_sent
from twoturn.session import Session

ROOT = Path(__file__).parents[1]
SAMPLE = (ROOT / "texts/sample-session.jsonl").read_bytes()
DEMO = tokens.load(ROOT / "checkpoints/demo/target")
ASK = {"role": "user", "content": "Where does the heron sleep? 🪶 zażółć"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": "reed"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "in the reeds " * 8000}  # 100 kB
TOLD = {"role": "assistant", "content": "In the reeds."}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def lines(*values: Any) -> bytes:
    return "\n".join(json.dumps(value, ensure_ascii=False) for value in values).encode()


def sent(recording: replay.Recording) -> list[list[dict[str, Any]]]:
    return [as_sent(turn) for turn in recording.conversations[0]]


# Reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        lines(ASK, CALL, RESULT, TOLD),
        lines({"messages": [ASK, CALL, RESULT, TOLD]}),
        json.dumps([ASK, CALL, RESULT, TOLD], indent=1).encode(),
        b"\xef\xbb\xbf" + lines(ASK, CALL, RESULT, TOLD) + b"\r\n\n",
        lines(ASK, CALL, RESULT, {**TOLD, "refusal": None, "annotations": []}, ASK),
    ],
    ids=["messages", "conversation", "list", "BOM", "more"],
)
def test_a_turn_is_what_comes_before_an_answer(data: bytes) -> None:
    assert sent(replay.read(data)) == [[ASK], [CALL, RESULT]]


def test_tools_go_along_and_conversations_are_kept_apart() -> None:
    one = {"messages": [ASK, TOLD], "tools": TOOLS}
    recording = replay.read(lines(one, one))
    assert recording.extra == {"tools": TOOLS}
    assert (len(recording.conversations), recording.turns) == (2, 2)
    made = workloads.dialogues(REPLAY, lines(one, one).decode(), None, "01")
    assert [(d.prompt_id, d.new, d.prompt_tokens) for d in made] == [
        ("p1", True, None),
        ("p2", False, None),
    ]


def test_a_greeting_is_no_turn_and_text_parts_are_joined() -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": t} for t in ("one", "two")]}
    recording = replay.read(lines(TOLD, asked, TOLD))
    assert sent(recording) == [[TOLD, {"role": "user", "content": "one\ntwo"}]]


SECRET = "heron"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the recording is empty"),
        (b" \n", "the recording is empty"),
        (b"\xff{}", "byte 0 is not UTF-8"),
        (lines(ASK) + b'\n{"role": "heron', "line 2 is not JSON"),
        (lines(ASK), "conversation 1 has no answer"),
        (lines(3), "line 1 is neither"),
        (lines({"heron": 1}), "line 1 is neither"),
        (lines({"role": "heron", "content": "x"}), "message 1 has no role"),
        (lines(ASK, {"role": "assistant"}), "message 2 has no content"),
        (lines({**ASK, "function_call": {"name": "x"}}), "message 1 holds 'function_call'"),
        (lines({**ASK, "the heron sleeps": 1}), "message 1 holds something"),
        (lines({**ASK, "content": [{"type": "image_url"}]}), "message 1 holds 'image_url'"),
        (lines({**ASK, "content": 5}), "message 1: content is neither"),
        (lines(ASK, {**CALL, "tool_calls": [{"id": "x"}]}), "message 2 holds a tool call without"),
        (lines({"messages": 3}), "messages is no list"),
        (lines({"messages": [ASK, TOLD], "tools": 3}), "tools is no list"),
        (lines({"messages": [ASK, TOLD], "user": "me"}), "the conversation holds 'user'"),
        (lines(ASK, {"messages": [ASK, TOLD]}), "stand in one file"),
        (
            lines({"messages": [ASK, TOLD]}, {"messages": [ASK, TOLD], "tools": TOOLS}),
            "other tools",
        ),
        (b'{"role": "user", "content": "\\ud800"}\n' + lines(TOLD), "half a letter"),
        (b"[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line_without_the_text(data: bytes, what: str) -> None:
    with pytest.raises(UserError) as error:
        replay.read(data)
    assert what in str(error.value)
    assert error.value.cure
    assert SECRET not in str(error.value)


# opencode -----------------------------------------------------------------------------------------


def part(kind: str, **more: Any) -> dict[str, Any]:
    return {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": kind, **more}


def tool(status: str, **state: Any) -> dict[str, Any]:
    return part("tool", callID="c1", tool="look", state={"status": status, **state})


def exported(*said: tuple[str, list[dict[str, Any]]], **info: Any) -> bytes:
    messages = [
        {"info": {"id": "msg_1", "role": role, **(info if role == "assistant" else {})}, "parts": p}
        for role, p in said
    ]
    return json.dumps({"info": {"id": "ses_1"}, "messages": messages, "todos": []}).encode()


ASKED = ("user", [part("text", text="Where?"), part("text", text="no", ignored=True)])
STEPS = [
    part("step-start"),
    part("reasoning", text="I look.", time={"start": 1}),
    part("text", text="Let me look."),
    tool("completed", input={"at": "reed"}, output="a heron", title="", metadata={}, time={}),
    part("step-finish", reason="tool-calls", cost=0, tokens={}),
    part("step-start"),
    part("text", text="There it is."),
    part("patch", hash="x", files=[]),
]


def test_an_export_of_opencode_is_what_it_sent() -> None:
    after = ("user", [part("text", text="Thanks."), part("file", mime="text/plain", url="x")])
    recording = replay.read(exported(ASKED, ("assistant", STEPS), after, ("assistant", STEPS[5:])))
    call = {"id": "c1", "type": "function"}
    assert sent(recording) == [
        [{"role": "user", "content": "Where?"}],
        [
            {
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "I look.",
                "tool_calls": [
                    call | {"function": {"name": "look", "arguments": '{"at": "reed"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a heron"},
        ],
        [{"role": "assistant", "content": "There it is."}, {"role": "user", "content": "Thanks."}],
    ]


@pytest.mark.parametrize(
    ("state", "result"),
    [
        (tool("error", input={}, error="no such place"), "no such place"),
        (
            tool("error", input={}, error="x", metadata={"interrupted": True, "output": "half"}),
            "half",
        ),
        (tool("running", input={}), replay.INTERRUPTED),
    ],
)
def test_a_call_that_failed_was_sent_on_with_its_error(state: Any, result: str) -> None:
    recording = replay.read(exported(ASKED, ("assistant", [state]), ("assistant", STEPS[5:])))
    assert sent(recording)[1][1]["content"] == result


def test_an_answer_that_failed_was_not_sent_on_unless_it_had_begun() -> None:
    failed = exported(ASKED, ("assistant", STEPS[5:]), error={"name": "APIError"})
    with pytest.raises(UserError, match="no answer"):
        replay.read(failed)
    stopped = exported(ASKED, ("assistant", STEPS[5:]), error={"name": "MessageAbortedError"})
    assert replay.read(stopped).turns == 1


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (("user", [part("compaction", auto=True)]), "message 1 compacts the session"),
        (("user", [part("file", mime="image/png", url="x")]), "message 1 holds 'file'"),
        (("user", [part("hologram")]), "message 1 holds 'hologram'"),
        (("assistant", [part("hologram")]), "message 1 holds 'hologram'"),
        (("assistant", [tool("completed", input={}, output="", attachments=[{}])]), "attachment"),
        (
            ("assistant", [tool("completed", input={}, output="x", time={"compacted": 5})]),
            "was cleared later on",
        ),
        (("assistant", [tool("completed")]), "lacks what opencode writes (KeyError)"),
        (("narrator", []), "of neither user nor assistant"),
    ],
)
def test_what_an_export_does_not_tell_is_refused(said: Any, what: str) -> None:
    with pytest.raises(UserError) as error:
        replay.read(exported(said))
    assert what in str(error.value)


@pytest.mark.parametrize("plain", [False, True])
def test_a_system_prompt_of_an_export_is_a_text(plain: bool) -> None:
    said = json.loads(exported(ASKED, ("assistant", STEPS[5:])))
    said["messages"][0]["info"]["system"] = 7
    with pytest.raises(UserError, match="message 1 lacks what opencode writes"):
        replay.read(json.dumps(said).encode(), plain=plain)


# Templates ----------------------------------------------------------------------------------------


def test_a_template_that_drops_calls_is_refused_with_the_turn() -> None:
    assert DEMO is not None
    what = "the chat template leaves a tool call or its result out"
    assert templates.fault(replay.read(lines(ASK, CALL, RESULT, TOLD)), DEMO) == f"turn 2: {what}"
    found = templates.fault(replay.read(lines({"messages": [ASK, TOLD], "tools": TOOLS})), DEMO)
    assert found == "turn 1: the chat template leaves the definitions of tools out"
    assert templates.fault(replay.read(lines(ASK, TOLD)), DEMO) is None


def test_a_template_that_knows_tools_gets_arguments_as_values(tmp_path: Path) -> None:
    shutil.copy(ROOT / "checkpoints/demo/target/tokenizer.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for m in messages %}"
        "{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name }}("
        "{{ c.function.arguments.at }}){% endfor %};{% endfor %}"
    )
    tokenizer = tokens.load(tmp_path)
    assert tokenizer is not None
    recording = replay.read(lines({"messages": [ASK, CALL, TOLD], "tools": TOOLS}))
    assert templates.fault(recording, tokenizer) is None
    assert "assistant:look(reed);" in tokenizer.render([CALL])
    broken = {**CALL, "tool_calls": [{"function": {"name": "look", "arguments": "{"}}]}
    assert "look()" in tokenizer.render([broken])


def test_plain_tools_are_text_for_any_template() -> None:
    assert DEMO is not None
    recording = replay.read(
        lines({"messages": [ASK, CALL, {**RESULT, "content": "here"}, ASK, TOLD], "tools": TOOLS}),
        plain=True,
    )
    assert templates.fault(recording, DEMO) is None
    assert recording.extra == {}
    (system, asked), (call, result) = sent(recording)
    assert [m["role"] for m in (system, asked, call, result)] == [
        *("system", "user", "assistant", "user")
    ]
    assert '"look"' in system["content"]
    assert call["content"].startswith("<tool_call>\n{")
    assert result["content"] == f"<tool_response>\nhere\n</tool_response>\n{ASK['content']}"


# Measuring ----------------------------------------------------------------------------------------

REPLAY = config.Replay.model_validate({"kind": "replay", "file": "x"})


def measured(tree: Tree, data: bytes, *options: str) -> tuple[Any, list[dict[str, Any]]]:
    (tree.root / "texts" / "mine.jsonl").write_bytes(data)
    command = [sys.executable, str(SCRIPTED), "--port", "{port}", "--model", "{model}"]
    tree.write(
        {
            "servers": {
                "one": {"command": [*command, "--tok-s", "2000", *options], "version": "1.0"}
            },
            "checkpoints": {"small": {"path": "models/small"}},
            "series": {
                "mine": {
                    "workload": {"kind": "replay", "file": "texts/mine.jsonl", "max_tokens": 8},
                    "rounds": 2,
                    "reference": "plain",
                    "arms": {
                        "plain": {"checkpoint": "small", "server": "one"},
                        "cached": {
                            **{"checkpoint": "small", "server": "one"},
                            "args": ["--prompt-cache"],
                        },
                    },
                }
            },
        }
    )
    loaded = tree.load()
    (series,) = loaded.plan.series
    session = Session("s", os.getpid(), 0.0)
    measure.run_round(loaded, series, 1, session, tree.root / "logs", lambda _: None)
    files = [tree.root / cell for cell in series.cells(1)]
    return loaded, [row for file in files for row in cells.read(file)[0].to_pylist()]


def phrases(data: bytes) -> set[str]:
    """What of a recording must be found nowhere: every five words in a row."""
    words = data.decode().replace("\\n", " ").split()
    return {" ".join(words[n : n + 5]) for n in range(len(words) - 4)}


def test_a_recording_is_sent_as_recorded_and_its_text_is_nowhere(tree: Tree) -> None:
    loaded, rows = measured(tree, SAMPLE)
    rows = [row for row in rows if row["kind"] == "round"]
    assert {row["status"] for row in rows} == {"ok"}
    counts = {(row["arm"], row["turn"]): row["cached_tokens"] for row in rows}
    assert [counts["plain", turn] for turn in range(1, 8)] == [0] * 7
    assert counts["cached", 1] == 0
    assert all(counts["cached", turn] > 20 for turn in range(2, 8))
    (series,) = loaded.plan.series
    assert series.spec["workload"]["turns"] == 7
    assert "file" not in series.spec["workload"]
    found = cells.join(
        [(file, series.fingerprint) for file in (tree.root / series.directory).rglob("*.parquet")]
    )
    compared = contrasts.from_cells(found.to_pandas(), [series])
    assert {row["metric"] for row in compared.to_pylist()} == {"conversation_s", "turns_ttft_s"}
    told = claims.from_contrasts(compared, [series])
    data = article.gather(loaded, found.to_pandas(), compared, told, {})
    for language, turn in (("en", "| Turn | Arm |"), ("pl", "| Tura | Wariant |")):
        text = article.render(language, data)
        assert turn in text
        (tree.root / "results" / f"article_{language}.md").write_text(text)
    kept = [tree.root / name for name in ("results", "logs")]
    files = [f for at in kept for f in at.rglob("*") if f.is_file()]
    everything = b"".join(f.read_bytes() for f in files)
    tables = [cells.read(f) for f in files if f.suffix == ".parquet"]  # compressed as files
    everything += repr([(table.to_pylist(), told) for table, told in tables]).encode()
    assert len(phrases(SAMPLE)) > 400
    assert [phrase for phrase in phrases(SAMPLE) if phrase.encode() in everything] == []
    assert b"mine.jsonl" not in everything


def test_what_a_server_says_of_a_recording_is_not_kept(tree: Tree) -> None:
    _, rows = measured(tree, lines(ASK, TOLD), "--die-after", "12")
    assert "ok" not in {row["status"] for row in rows if row["kind"] == "round"}
    told = {"status": "http_error", "reason": f"HTTP 400: {SECRET}", "model": SECRET}
    kept = measure._without_words(told)
    assert kept == {**told, "reason": "what the server said is not kept", "model": None}
    logs = [file.read_text() for file in (tree.root / "logs").glob("round-*.log")]
    assert logs == [measure.NOT_KEPT] * 2


def test_faults_of_a_recording_name_file_and_key(tree: Tree) -> None:
    with pytest.raises(UserError) as error:
        measured(tree, b'{"role"')
    assert str(error.value).startswith(
        "campaign.yaml: series.mine.workload.file: line 1 is not JSON; "
    )
