"""An ACP agent that does what a script says: a process of its own, without any library.

    python scripted_agent.py SCRIPT.json

The script is `{"options": {…}, "turns": [[step, …], …]}`; each prompt runs the next turn, later ones say
"Fine." Every line that it gets is kept in `received.jsonl` beside the script, its number in `pid`. Steps:

    {"update": {…}}                      session/update
    {"ask": {…}, "options": […],         session/request_permission; then the steps for the outcome
     "allowed": […], "refused": […]}
    {"write": [path, text]}              a file, as a real tool would
    {"append": [path, text]}             one more line of it, so that twice is seen
    {"send": {…}} {"line": "…"}          any message; any bytes
    {"await_cancel": true}               until session/cancel comes
    {"await_file": path}                 until the file is there
    {"hang": true}                       reads nothing any more
    {"exit": code} {"kill": true}        the process ends
    {"stop": reason}                     the turn ends with this reason
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.argv[1])
FOLDER = SCRIPT.parent
script: dict[str, Any] = json.loads(SCRIPT.read_text())
given: dict[str, Any] = script.get("options", {})
ASK_OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
# Turns that were played are counted in a file: a restarted agent goes on behind them.
PLAYED = FOLDER / "played"
received = (FOLDER / "received.jsonl").open("a")
cancelled = False
next_id = 1000
session = ""
mode = given.get("mode", "default")
answers: dict[Any, Any] = {}


def send(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def update(body: Any, to: str | None = None) -> None:
    params = {"sessionId": to or session, "update": body}
    send({"jsonrpc": "2.0", "method": "session/update", "params": params})


def say(text: str) -> None:
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    received.write(line)
    received.flush()
    message: dict[str, Any] = json.loads(line)
    return message


def ask(step: dict[str, Any]) -> str:
    """The id of the chosen option; empty when it was cancelled or refused otherwise."""
    global next_id, cancelled
    next_id += 1
    params = {
        "sessionId": step.get("session", session),
        "toolCall": step["ask"],
        "options": step.get("options", ASK_OPTIONS),
    }
    send({"jsonrpc": "2.0", "id": next_id, "method": "session/request_permission", "params": params})
    for late in step.get("meanwhile", ()):
        run(late)
    while True:
        message = read()
        if message.get("id") == next_id and "method" not in message:
            outcome = message.get("result", {}).get("outcome", {})
            return str(outcome.get("optionId", ""))
        if message.get("method") == "session/cancel":
            cancelled = True
        elif "id" in message and "method" in message:
            handle(message)


def run(step: dict[str, Any]) -> str | None:
    """One step; a reason to stop, or None to go on."""
    global cancelled
    if "update" in step:
        for _ in range(step.get("times", 1)):
            update(step["update"], step.get("session"))
    elif "ask" in step:
        chosen = ask(step)
        if cancelled:
            return "cancelled"
        for each in step.get("allowed" if chosen in ("once", "allow") else "refused", ()):
            if (reason := run(each)) is not None:
                return reason
    elif "say" in step:
        say(step["say"])
    elif "write" in step:
        Path(step["write"][0]).write_text(step["write"][1])
    elif "append" in step:
        with Path(step["append"][0]).open("a") as file:
            file.write(step["append"][1])
    elif "send" in step:
        send(step["send"])
    elif "line" in step:
        sys.stdout.write(step["line"] * step.get("times", 1) + "\n")
        sys.stdout.flush()
    elif "await_cancel" in step:
        while not cancelled:
            message = read()
            if message.get("method") == "session/cancel":
                cancelled = True
        return "cancelled"
    elif "await_file" in step:
        while not Path(step["await_file"]).exists():
            time.sleep(0.005)
    elif "hang" in step:
        while True:
            time.sleep(60)
    elif "kill" in step:
        os.kill(os.getpid(), signal.SIGKILL)
    elif "exit" in step:
        sys.exit(step["exit"])
    elif "stop" in step:
        return str(step["stop"])
    return None


def probe(text: str) -> bool:
    """Whether this was a probe; what it does then is an option."""
    if "probe-" not in text:
        return False
    name = next(word for word in text.replace("\n", " ").split() if "probe-" in word and word.endswith("txt"))
    how = given.get("probe", "ask")
    if how == "act":
        Path(name).write_text("x")
    elif how == "ask":
        kind = "execute" if "touch" in text else "edit"
        ask({"ask": {"toolCallId": name, "kind": kind, "title": text[:40]}})
    return True


def prompt(params: dict[str, Any]) -> str:
    global cancelled, session
    cancelled = False
    session = params["sessionId"]
    text = "\n".join(block["text"] for block in params["prompt"])
    if probe(text):
        return "end_turn"
    played = int(PLAYED.read_text()) if PLAYED.exists() else 0
    PLAYED.write_text(str(played + 1))
    turns = script.get("turns", [])
    for step in turns[played] if played < len(turns) else [{"say": "Fine."}]:
        if (reason := run(step)) is not None:
            return reason
    return "end_turn"


def modes() -> dict[str, Any]:
    names = given.get("modes", ["default", "yolo"])
    return {"currentModeId": mode, "availableModes": [{"id": name, "name": name} for name in names]}


def handle(message: dict[str, Any]) -> None:
    global session, mode, cwd
    method, params, id = message["method"], message.get("params", {}), message.get("id")
    result: Any = {}
    if method == "initialize":
        result = {
            "protocolVersion": given.get("version", 1),
            "agentCapabilities": {"loadSession": given.get("load", False)},
            "agentInfo": {"name": "scripted", "version": "1"},
        }
    elif method == "session/new":
        sessions = len(list(FOLDER.glob("session-*")))
        session = f"session-{sessions + 1}"
        (FOLDER / session).write_text("")
        cwd = params["cwd"]
        # Settings of a project: they name a file to make.
        if given.get("settings") and (conf := Path(cwd, given["settings"])).exists():
            Path(conf.read_text()).touch()
        result = {"sessionId": session, "modes": modes()}
        if given.get("commands"):
            names = [{"name": name, "description": name} for name in given["commands"]]
            update({"sessionUpdate": "available_commands_update", "availableCommands": names})
    elif method == "session/load":
        session, cwd = params["sessionId"], params["cwd"]
        if not (FOLDER / session).exists():
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "no such session"}})
            return
        say("an old answer that was shown before")
        result = {"modes": modes()}
    elif method == "authenticate" and params.get("methodId") == given.get("sign_in"):
        result = {}
    elif method == "session/set_mode":
        if given.get("refuse_mode"):
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no"}})
            return
        mode = params["modeId"]
    elif method == "session/prompt" and given.get("no_key"):
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "Authentication required"}})
        return
    elif method == "session/prompt":
        result = {"stopReason": prompt(params)}
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
        return
    if id is not None:
        send({"jsonrpc": "2.0", "id": id, "result": result})


cwd = "."
(FOLDER / "pid").write_text(str(os.getpid()))
while True:
    incoming = read()
    if "method" in incoming:
        handle(incoming)
