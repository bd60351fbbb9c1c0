"""`moot origins` with a real approver: what tools are said to do, and what people endorse."""

from __future__ import annotations

from moot.participant import JoinedSpace
from tests.cli.space_with_members import SpaceWithMembers
from tests.cli.test_trusting import SpaceWithApprover, approver_space, lab

__all__ = ["approver_space", "lab"]


def offer_tools(members: SpaceWithMembers) -> None:
    members.do(_offer(members.join("files")))


async def _offer(files: JoinedSpace) -> None:

    @files.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
    def read_file(path: str) -> str:
        return path

    @files.tool
    def write_file(path: str) -> str:
        return path


def test_what_tools_do_is_told_in_words_and_changed(approver_space: SpaceWithApprover) -> None:
    lab = approver_space.lab
    offer_tools(lab)
    listed = lab.output_of("origins", "list")
    assert "the worst is assumed: results of write_file contain what others write" in listed
    assert "(moot origins accept files/read_file)" in listed
    lab.output_of("origins", "accept", "files")
    lab.output_of("origins", "set", "files/write_file", "outside=false", "returns=trusted")
    lab.output_of("origins", "set", "files/write_file", "effect=destroys")
    tools = {each["tool"]: each for each in lab.value("origins", "list", "--json")["tools"]}
    assert tools["files/read_file"]["traits"]["effect"] == "reads"
    words = tools["files/write_file"]["words"]
    assert ("trusted" in words, words.endswith("it can destroy something")) == (True, True)
    lab.output_of("origins", "forget", "files/write_file")
    assert [each["pattern"] for each in lab.value("origins", "list", "files", "--json")["lines"]] == [
        "files/read_file"
    ]


def test_what_cannot_be_done_is_said(approver_space: SpaceWithApprover) -> None:
    offer_tools(approver_space.lab)
    for words, answer in (
        (["set", "files/write_file", "effect=maybe"], "effect is reads or writes or destroys"),
        (["set", "files/write_file", "effect"], "write KEY=VALUE"),
        (["set", "write_file", "effect=reads"], "write HOST/TOOL"),
        (["accept", "files/write_file"], "claims nothing (it has no annotations)"),
        (["accept", "nosuch"], "nosuch is not known"),
        (["forget", "files/write_file"], "nothing is said of files/write_file"),
        (["endorse"], "name a value, or a message with --source ID"),
        (["revoke", "nosuch"], "no endorsement that holds"),
        (["show", "nosuch"], "nothing is known of a proposal 'nosuch'"),
    ):
        code, output = approver_space.lab.fails("origins", *words)
        assert (code != 0, answer in output) == (True, True), output


def test_a_value_is_endorsed_listed_and_revoked(approver_space: SpaceWithApprover) -> None:
    lab = approver_space.lab
    lab.output_of("origins", "endorse", "sales@example.org", "--until", "2h", "--member", "agent")
    (endorsed,) = lab.value("origins", "endorsements", "--json")
    assert (endorsed["value"], endorsed["member"], endorsed["by"]) == ("sales@example.org", "agent", "alice")
    assert "sales@example.org" in lab.output_of("origins", "endorsements")
    assert lab.output_of("origins", "revoke", endorsed["id"]).startswith("revoked")
    assert lab.output_of("origins", "endorsements").startswith("nothing is endorsed")
