# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What AWX refuses, with its own words where they are known, and what it takes and ignores, which is refused here."""

from __future__ import annotations

import json
import re
import typing as t

import jinja2
import jinja2.sandbox
import yaml

Json = t.Dict[str, t.Any]
NAME = re.compile(r"[a-zA-Z_]+[a-zA-Z0-9_]*")
EXTRA = re.compile(r"[a-zA-Z_{}]+[a-zA-Z0-9_{}]*")
IMAGE = re.compile(r"[a-zA-Z0-9][\w.-]*(:[0-9]+)?(/[\w.-]+)*(:[\w.-]+)?(@[\w+.:-]+)?")
URL = re.compile(r"(https?|ssh|git)://[^/\s]+/\S+|[\w.-]+@[\w.-]+:\S+")
QUESTIONS = ("text", "textarea", "password", "multiplechoice", "multiselect", "integer", "float")
KEYS = {"question_name", "question_description", "variable", "type", "required", "min", "max", "choices", "default"}


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, document: t.Any, status: int = 400) -> None:
        super().__init__(json.dumps(document))
        self.document, self.status = document, status


def ignored(what: str) -> Refused:
    """Return the refusal of what AWX would take."""
    return Refused({"ignored_by_awx": [what]})


def mapping(field: str, value: t.Any) -> Json:
    """Return the object that a text of JSON or YAML holds."""
    if not isinstance(value, str):
        raise Refused({field: ["Not a valid string."]})
    try:
        loaded = yaml.safe_load(value) if value else {}
    except yaml.YAMLError:
        loaded = None
    if not isinstance(loaded, dict):
        raise Refused(
            {
                field: [
                    f"Cannot parse as JSON or YAML (error: Input type `{type(loaded).__name__}` is not a dictionary)."
                ]
            }
        )
    return loaded


def plain(field: str, value: t.Any, spec: Json, texts: t.Container[str]) -> None:
    """Check one value of a body against its entry in the table; `texts` are json fields that are sent as a text."""
    if value is None:
        if spec["type"] != "id" and spec.get("default", "") is not None and None not in spec.get("choices", []):
            raise Refused({field: ["This field may not be null."]})
        return
    kind = spec["type"]
    if kind == "choice" and value not in spec["choices"]:
        raise Refused({field: [f'"{value}" is not a valid choice.']})
    if kind == "boolean" and not isinstance(value, bool):
        raise Refused({field: ["Must be a valid boolean."]})
    if kind in ("integer", "id"):
        _whole(field, value, spec)
    if kind == "string":
        _text(field, value, spec)
    if kind == "json" and field in texts:
        mapping(field, value)
    elif kind == "json" and not isinstance(value, dict):
        raise Refused({field: [f"{type(value).__name__} provided, expected dict"]})


def _whole(field: str, value: t.Any, spec: Json) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused({field: ["A valid integer is required."]})
    if "min_value" in spec and value < spec["min_value"]:
        raise Refused({field: [f"Ensure this value is greater than or equal to {spec['min_value']}."]})


def _text(field: str, value: t.Any, spec: Json) -> None:
    if not isinstance(value, str):
        raise Refused({field: ["Not a valid string."]})
    if spec["required"] and not value:
        raise Refused({field: ["This field may not be blank."]})
    if len(value) > spec.get("max_length", len(value)):
        raise Refused({field: [f"Ensure this field has no more than {spec['max_length']} characters."]})


# Surveys.


def survey(spec: t.Any, stored: t.Any = None) -> None:
    """Check a survey as AWX does on POST, and refuse what it would save and not heed."""
    if not isinstance(spec, dict):
        raise Refused({"detail": "JSON parse error - not a JSON object"})
    for key, kind in (("name", str), ("description", str), ("spec", list)):
        if key not in spec:
            raise Refused({"error": f"Field '{key}' is missing from survey spec."})
        if not isinstance(spec[key], kind):
            raise Refused(
                {"error": f"Expected {kind.__name__} for field '{key}', received {type(spec[key]).__name__} type."}
            )
    if not spec["spec"]:
        raise Refused({"error": "'spec' doesn't contain any items."})
    if set(spec) - {"name", "description", "spec"}:
        raise ignored(f"survey keys {sorted(set(spec) - {'name', 'description', 'spec'})}")
    seen: set[str] = set()
    for number, question in enumerate(spec["spec"]):
        _question(number, question)
        if question["variable"] in seen:
            raise Refused({"error": f"'variable' '{question['variable']}' duplicated in survey question {number}."})
        seen.add(question["variable"])


def _question(number: int, question: t.Any) -> None:
    _shape(number, question)
    if question["type"] not in QUESTIONS:
        known = ", ".join(QUESTIONS)
        text = f"'{question['type']}' in survey question {number} is not one of '{known}' allowed question types."
        raise Refused({"error": text})
    if set(question) - KEYS:
        raise ignored(f"question keys {sorted(set(question) - KEYS)}")
    if not NAME.fullmatch(question["variable"]):
        raise ignored(f"question variable {question['variable']!r} is no name")
    for key in ("min", "max"):
        if question.get(key) is not None and not isinstance(question[key], int):
            raise Refused({"error": f"The {key} limit in survey question {number} expected to be integer."})
    _choices(number, question)
    if "default" in question:
        _default(number, question)


def _shape(number: int, question: t.Any) -> None:
    if not isinstance(question, dict):
        raise Refused({"error": f"Survey question {number} is not a json object."})
    for key in ("type", "question_name", "variable", "required"):
        if key not in question:
            raise Refused({"error": f"'{key}' missing from survey question {number}"})
    for key, kind, name in (
        ("required", bool, "boolean"),
        ("variable", str, "string"),
        ("question_name", str, "string"),
    ):
        if not isinstance(question[key], kind):
            raise Refused({"error": f"'{key}' in survey question {number} expected to be {name}."})


def _choices(number: int, question: Json) -> None:
    if question["type"] not in ("multiplechoice", "multiselect"):
        if question.get("choices"):
            raise ignored(f"choices of a question of type {question['type']}")
        return
    if "choices" not in question:
        raise Refused({"error": f"Survey question {number} of type {question['type']} must specify choices."})
    choices = question["choices"]
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one for one in choices):
        raise ignored(f"choices {choices!r}")


def _default(number: int, question: Json) -> None:
    default, kind = question["default"], question["type"]
    expected = {"integer": "integer", "float": "float"}.get(kind, "string")
    types: t.Any = {"integer": int, "float": (int, float)}.get(kind, str)
    if default != "" and not isinstance(default, types):
        raise Refused({"error": f"Default value {default} in survey question {number} expected to be {expected}."})
    if default == "$encrypted$" and kind != "password":
        text = (
            f"$encrypted$ is a reserved keyword for password question defaults, survey question "
            f"{number} is type {kind}."
        )
        raise Refused({"error": text})
    if kind == "multiplechoice" and "\n" in str(default):
        raise Refused({"error": "Multiple Choice (Single Select) can only have one default value."})
    if kind in ("multiplechoice", "multiselect"):
        if default and set(default.split("\n")) - set(question["choices"]):
            raise Refused({"error": "Default choice must be answered from the choices listed."})
    elif default != "" and answer_problem({**question, "variable": "default"}, default):
        raise ignored("a default outside min and max, which AWX drops when the job starts")


def answer_problem(question: Json, value: t.Any) -> str:
    """Return what AWX says of an answer that it does not take."""
    name, kind = question["variable"], question["type"]
    if kind in ("text", "textarea", "password"):
        if not isinstance(value, str):
            return f"Value {value} for '{name}' expected to be a string."
        return _limits(question, value, len(value))
    if kind == "integer" and (isinstance(value, bool) or not isinstance(value, int)):
        return f"Value {value} for '{name}' expected to be an integer."
    if kind == "float" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return f"Value {value} for '{name}' expected to be a numeric type."
    if kind in ("integer", "float"):
        return _limits(question, value, value)
    if kind == "multiselect" and not isinstance(value, list):
        return f"'{name}' value is expected to be a list."
    wrong = [one for one in (value if kind == "multiselect" else [value]) if one not in question["choices"]]
    return f"Value {wrong[0]} for '{name}' expected to be one of {question['choices']}." if wrong else ""


def _limits(question: Json, value: t.Any, size: t.Any) -> str:
    name, low, high = question["variable"], question.get("min"), question.get("max")
    text = f" (length is {size} must be at least {low})" if isinstance(value, str) else f" (must be at least {low})"
    if low is not None and size < low:
        return f"'{name}' value {value} is too small{text}."
    if high is not None and size > high:
        return f"'{name}' value {value} is too large (must be no more than {high})."
    return ""


# Types of credentials and what they inject.


def credential_type(body: Json, blocked: t.Container[str]) -> None:
    """Check a type's inputs and injectors."""
    if body.get("kind") not in ("cloud", "net"):
        raise Refused({"kind": [f"Must be 'cloud' or 'net', not {body.get('kind')}"]})
    inputs, injectors = body.get("inputs", {}), body.get("injectors", {})
    if set(inputs) - {"fields", "required"}:
        key = sorted(set(inputs) - {"fields", "required"})[0]
        raise Refused(
            {
                "inputs": [
                    f"Schema validation error in relative path [] (Additional properties are not "
                    f"allowed ('{key}' was unexpected))"
                ]
            }
        )
    ids = [_field(number, field) for number, field in enumerate(inputs.get("fields", []))]
    for name in ids:
        if ids.count(name) > 1:
            raise Refused({"inputs": [f"field IDs must be unique ({name})"]})
    for name in inputs.get("required", []):
        if name not in ids:
            raise ignored(f"required input {name}, which is no field")
    if set(injectors) - {"env", "extra_vars", "file"}:
        raise Refused({"injectors": [f"Additional properties are not allowed ({sorted(injectors)})"]})
    _injectors(injectors, ids, blocked)


FIELD = {"id", "label", "type", "format", "choices", "help_text", "multiline", "secret", "ask_at_runtime", "default"}


def _field(number: int, field: Json) -> str:
    for key in ("id", "label"):
        if key not in field:
            raise Refused({"inputs": [f"'{key}' is a required property"]})
    if set(field) - FIELD:
        key = sorted(set(field) - FIELD)[0]
        raise Refused(
            {
                "inputs": [
                    f"Schema validation error in relative path ['fields', {number}] (Additional "
                    f"properties are not allowed ('{key}' was unexpected))"
                ]
            }
        )
    kind, name = field.get("type", "string"), str(field["id"])
    if kind not in ("string", "boolean"):
        raise Refused({"inputs": [f"'{kind}' is not one of ['string', 'boolean']"]})
    if name == "tower":
        raise Refused({"inputs": ['"tower" is a reserved field name']})
    if not NAME.fullmatch(name):
        raise Refused({"inputs": [f"{name} is an invalid variable name"]})
    for key in ("choices", "multiline", "format", "secret"):
        if kind == "boolean" and key in field:
            raise Refused({"inputs": [f"{key} not allowed for boolean type ({name})"]})
    if field.get("format", "url") not in ("ssh_private_key", "url"):
        raise Refused({"inputs": [f"'{field['format']}' is not one of ['ssh_private_key', 'url']"]})
    return name


class _Tower:
    """The name ``tower`` in an injector: the files, and nothing else."""

    def __init__(self, files: t.Container[str]) -> None:
        self._files = files

    @property
    def filename(self) -> t.Any:
        if "template" in self._files:
            return "/a/file"
        named = {key.partition(".")[2]: "/a/file" for key in t.cast(t.Iterable[str], self._files)}
        if not named:
            raise jinja2.UndefinedError("Must define unnamed file injector in order to reference `tower.filename`.")
        return type("Files", (), named)()


def _injectors(injectors: Json, ids: list[str], blocked: t.Container[str]) -> None:
    files = injectors.get("file", {})
    for key in files:
        if not re.fullmatch(r"template(\.[a-zA-Z_]+[a-zA-Z0-9_]*)?", key):
            raise Refused(
                {
                    "injectors": [
                        f"Schema validation error in relative path ['file'] ('{key}' does not match any of the regexes)"
                    ]
                }
            )
    if "template" in files and len(files) > 1:
        raise Refused({"injectors": ["Must use multi-file syntax when injecting multiple files"]})
    for name, value in injectors.get("env", {}).items():
        _variable(name, value, blocked)
    for name, value in injectors.get("extra_vars", {}).items():
        if not EXTRA.fullmatch(name) or not _strings(value):
            raise Refused({"injectors": [f"{value} is not valid under any of the given schemas"]})
    # Required inputs have a value, optional ones may be missing.
    known = dict.fromkeys(ids, "x")
    for place in ("env", "extra_vars", "file"):
        for name, value in injectors.get(place, {}).items():
            for text in _texts(value):
                render(name, text, known, files)


def _variable(name: str, value: t.Any, blocked: t.Container[str]) -> None:
    if not NAME.fullmatch(name):
        raise Refused(
            {
                "injectors": [
                    f"Schema validation error in relative path ['env'] ('{name}' does not match any "
                    f"of the regexes: '^[a-zA-Z_]+[a-zA-Z0-9_]*$')"
                ]
            }
        )
    if not isinstance(value, str):
        raise Refused(
            {"injectors": [f"{type(value).__name__} provided in relative path ['env', '{name}'], expected string"]}
        )
    if not value.isascii():
        raise Refused({"injectors": ["'é' does not match '^[\\x00-\\x7f]*$'"]})
    if name.startswith("ANSIBLE_"):
        raise Refused(
            {
                "injectors": [
                    f"Environment variable {name} may affect Ansible configuration so its use is not "
                    f"allowed in credentials."
                ]
            }
        )
    if name in blocked:
        raise Refused({"injectors": [f"Environment variable {name} is not allowed to be used in credentials."]})


def _strings(value: t.Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _strings(one) for key, one in value.items())
    return all(map(_strings, value)) if isinstance(value, list) else isinstance(value, str)


def _texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def render(name: str, text: str, values: Json, files: t.Container[str], strict: bool = True) -> str:
    """Render a template of an injector, strictly as when the type is saved, or as a job gets it."""
    undefined = jinja2.StrictUndefined if strict else jinja2.Undefined
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=undefined)
    try:
        return environment.from_string(text).render(tower=_Tower(files), **values)
    except jinja2.TemplateSyntaxError as exc:
        raise Refused({"injectors": [f"Syntax error rendering template for {name} ({exc})"]}) from exc
    except jinja2.sandbox.SecurityError as exc:
        raise Refused({"injectors": [f"Encountered unsafe code execution: {exc}"]}) from exc
    except jinja2.UndefinedError as exc:
        raise Refused({"injectors": [f"{name} uses an undefined field ({exc})"]}) from exc


def credential_inputs(inputs: Json, fields: t.Sequence[Json], required: t.Iterable[str], managed: bool) -> None:
    """Check the inputs of a credential; an empty required one, which AWX takes, is refused."""
    types = {field["id"]: field.get("type", "string") for field in fields}
    for name, value in inputs.items():
        if name not in types:
            raise Refused({"inputs": [f"Additional properties are not allowed ('{name}' was unexpected)"]})
        known = not managed or any("type" in field for field in fields if field["id"] == name)
        if known and not isinstance(value, bool if types[name] == "boolean" else str):
            raise Refused({"inputs": {name: [f"{value!r} is not of type '{types[name]}'"]}})
    for name in required:
        if not inputs.get(name):
            raise ignored(f"the required input {name} is empty")


# Schedules.


def schedule(rule: str) -> None:
    """Check an rrule."""
    problems = []
    starts = re.findall(r"DTSTART\S*", rule)
    rules = re.findall(r"(?:^|\s)RRULE:(\S+)", rule)
    if len(starts) > 1:
        raise Refused({"rrule": ["Multiple DTSTART is not supported."]})
    if not starts:
        problems.append("Valid DTSTART required in rrule. Value should start with: DTSTART:YYYYMMDDTHHMMSSZ")
    elif not re.fullmatch(r"DTSTART(:\d{8}T\d{6}Z|;TZID=[\w/+-]+:\d{8}T\d{6})", starts[0]):
        problems.append("DTSTART cannot be a naive datetime.  Specify ;TZINFO= or YYYYMMDDTHHMMSSZZ.")
    if not rules:
        problems.append("One or more rule required in rrule.")
    for one in rules:
        problems += _rule(one)
    if problems:
        raise Refused({"rrule": problems})


def _rule(one: str) -> list[str]:
    parts = dict(part.partition("=")[::2] for part in one.split(";"))
    problems = []
    if "INTERVAL" not in parts:
        problems.append(f"INTERVAL required in rrule: RULE:{one}")
    if parts.get("FREQ") == "SECONDLY":
        problems.append(f"SECONDLY is not supported: RULE:{one}")
    if "COUNT" in parts and "UNTIL" in parts:
        problems.append(f"RRULE may not contain both COUNT and UNTIL: RULE:{one}")
    if int(parts.get("COUNT", "0")) > 999:
        problems.append(f"COUNT > 999 is unsupported: RULE:{one}")
    if re.search(r"\d", parts.get("BYDAY", "")):
        problems.append(f"BYDAY with numeric prefix not supported: RULE:{one}")
    return problems
