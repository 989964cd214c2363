"""The OpenAPI 3.1 document: ``python -m brain.api > docs/reference/openapi.json``.

pydantic derives the schemas of answers from the dataclasses of ``brain.views`` and ``brain.types``.
``brain.wire`` parses request bodies, so this module adds their schemas.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import TypeAdapter

from brain import storable, wire
from brain.api import routers
from brain.api.deps import Who
from brain.api.problems import MEDIA_TYPE
from brain.api.routes.access import MOST_DAYS, CodeRequest, SignIn, TokenRequest
from brain.api.routes.bulk import MOST_JOBS
from brain.api.routes.fleet import FreezeRequest
from brain.keys import camel
from brain.lifecycle.edits import LEAST_CPU, LEAST_MEMORY, MOST_CPU, MOST_MEMORY
from brain.types.allocation import MOST_REPLICAS
from brain.types.document import NAME, PRIORITIES
from brain.types.grace import MOST_SECONDS
from brain.types.job import JobCopy, JobDocument, ObjectCondition
from brain.types.record import Role
from brain.types.resources import Node
from brain.types.roles import GROUP_NAME, NAMED, PS
from brain.types.sharing import PoolShares
from brain.types.world import ReplicaReport, WorldReport
from brain.views import (
    EstimateRequest,
    JobEdit,
    JobsRequest,
    PlanDecision,
    Problem,
    ResizeRequest,
    ScalerAnswer,
)

router = routers.router("service")

#: Types of request bodies, except telemetry and the job document.
_BODIES: Mapping[str, type] = {
    "mirror": JobCopy,
    "report_world": WorldReport,
    "report_replicas": ReplicaReport,
    "answer_request": ScalerAnswer,
    "put_node": Node,
    "estimate": EstimateRequest,
    "resize": ResizeRequest,
    "edit": JobEdit,
    "approve": PlanDecision,
    "reject": PlanDecision,
    "rollback": PlanDecision,
    "freeze": FreezeRequest,
    "cancel_jobs": JobsRequest,
    "suspend_jobs": JobsRequest,
    "resume_jobs": JobsRequest,
    "mint": TokenRequest,
    "new_code": CodeRequest,
    "sign_in": SignIn,
}
Schema = dict[str, Any]


def _or_null(**schema: object) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


#: Requests that people write, in which an unknown field is an error.
_ASKED: Collection[type] = (
    EstimateRequest,
    JobsRequest,
    ResizeRequest,
    JobEdit,
    PlanDecision,
    FreezeRequest,
    TokenRequest,
    CodeRequest,
    SignIn,
)
_NO_NUL = r"^[^\x00]*$"
_DOCUMENT = {"$ref": "#/components/schemas/JobDocument"}
_COUNT = {"minimum": 1, "maximum": storable.MOST_INTEGER}
_COUNT_OR_NULL = _or_null(type="integer", **_COUNT)
_AMOUNT = {"minimum": 0}
_LIMIT_OR_NULL = _or_null(type="number", exclusiveMinimum=0)
#: Constraints on fields that the fields' types do not express.
_RULES: Mapping[str, Mapping[str, Schema]] = {
    "TokenRequest": {
        "name": {"pattern": r"\S"},
        "role": {"enum": [role.value for role in Role if role is not Role.AGENT]},
        "days": _or_null(type="number", exclusiveMinimum=0, maximum=MOST_DAYS),
    },
    "JobDocument": {
        "name": {"pattern": NAME},
        "project": {"pattern": NAME},
        "command": {"items": {"type": "string", "pattern": _NO_NUL}},
        "processesPerReplica": _COUNT,
        "epochs": _COUNT_OR_NULL,
        "steps": _COUNT_OR_NULL,
        "priority": {"minimum": PRIORITIES[0], "maximum": PRIORITIES[-1]},
        "environment": {"propertyNames": {"pattern": r"^[^=\x00]+$"}},
        "roles": {
            "propertyNames": {"enum": list(NAMED)},
            "anyOf": [{"maxProperties": 0}, {"required": [PS]}],
        },
        "groups": {"propertyNames": {"pattern": f"^{GROUP_NAME}$"}},
    },
    "DocumentRoleSize": {"replicas": _COUNT, "processesPerReplica": _COUNT_OR_NULL},
    "DocumentBounds": {"min": _COUNT, "max": _COUNT | {"maximum": MOST_REPLICAS}, "unit": _COUNT},
    "DocumentResources": {"cpuMillis": _AMOUNT, "memoryBytes": _AMOUNT, "gpus": _AMOUNT},
    "DocumentParallelism": {"tensor": _COUNT, "pipeline": _COUNT},
    "DocumentBatchBounds": {
        **dict.fromkeys(("globalSize", "globalMax", "localMin", "localMax"), _COUNT_OR_NULL),
        "localMaxOn": {"additionalProperties": {"type": "integer", **_COUNT}},
    },
    "DocumentBudget": {"acceleratorHours": _LIMIT_OR_NULL, "cost": _LIMIT_OR_NULL},
    "DocumentCheckpoint": {
        "graceSeconds": _or_null(type="number", minimum=0, maximum=MOST_SECONDS),
        "path": _or_null(type="string", minLength=1),
    },
    "DocumentRestarts": {"limit": _AMOUNT},
    "DocumentProjectShare": {
        "guaranteed": _AMOUNT,
        "limit": _or_null(type="integer", minimum=0),
        "priority": {"minimum": PRIORITIES[0], "maximum": PRIORITIES[-1]},
    },
    "DocumentPoolShares": {"projects": {"propertyNames": {"pattern": NAME}}},
    "EstimateRequest": {"document": _DOCUMENT},
    "JobCopy": {"document": _DOCUMENT},
    "EstimateQuestion": {
        "steps": _COUNT_OR_NULL,
        "prices": {"additionalProperties": {"type": "number", "minimum": 0}},
    }
    | dict.fromkeys(
        ("examples", "examples_per_epoch", "deadline_seconds", "budget", "accelerator_hours"),
        _LIMIT_OR_NULL,
    ),
    "JobsRequest": {"jobs": {"maxItems": MOST_JOBS}},
    "ResizeRequest": {"replicas": _COUNT},
    "JobEdit": {
        "cpu_millis": _or_null(type="integer", minimum=LEAST_CPU, maximum=MOST_CPU),
        "memory_bytes": _or_null(type="integer", minimum=LEAST_MEMORY, maximum=MOST_MEMORY),
        "replicas": _COUNT_OR_NULL,
    },
}
#: Constraints on several fields of a type: one of these schemas must match.
_TOGETHER: Mapping[str, list[Schema]] = {
    "FreezeRequest": [
        {"properties": {"scope": {"const": "all"}}},
        {"properties": {"target": {"minLength": 1}}, "required": ["target"]},
    ],
    "JobDocument": [
        {"properties": {"command": {"minItems": 1}}, "required": ["command"]},
        {"properties": {"image": {"type": "string", "minLength": 1}}, "required": ["image"]},
    ],
    "JobsRequest": [
        {
            "properties": {"jobs": {"minItems": 1}, "filter": {"pattern": r"^\s*$"}},
            "required": ["jobs"],
        },
        {
            "properties": {"jobs": {"maxItems": 0}, "filter": {"pattern": r"\S"}},
            "required": ["filter"],
        },
    ],
    "JobEdit": [
        {"properties": {name: {"type": "integer"}}, "required": [name]}
        for name in ("cpu_millis", "memory_bytes", "replicas")
    ],
    "DocumentSecret": [
        {"properties": {name: {"type": "string"}, other: {"type": "null"}}, "required": [name]}
        for name, other in (("fromFile", "fromSecret"), ("fromSecret", "fromFile"))
    ],
}
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
#: Responses that any request with a body may get.
_OF_BODIES = {"408": {"description": "TooSlow"}, "413": {"description": "TooLarge"}}


@router.get("/openapi.json", include_in_schema=False)
def served(request: Request, who: Who) -> Response:
    """Return the OpenAPI document as an HTTP response."""
    return Response(as_text(request.app), media_type="application/json")


def as_text(app: FastAPI) -> str:
    """Return the document in the form stored in ``docs/reference/openapi.json``."""
    return json.dumps(document(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def document(app: FastAPI) -> Schema:
    """Return the document of an app, with bodies, problems and authentication."""
    described = deepcopy(app.openapi())
    schemas: Schema = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = TypeAdapter(Problem).json_schema(mode="serialization")
    for schema in schemas.values():
        # Answers are written in full, so fields with defaults are always present.
        if "properties" in schema:
            schema["required"] = sorted(schema["properties"])
    for method, operation in _operations(described):
        if method != "get":
            operation["responses"].update(_OF_BODIES | operation["responses"])
        _tell_problems(operation)
        _tell_fields(operation, schemas)
        if (body := _body(operation["operationId"], schemas)) is not None:
            content = {"application/json": {"schema": body}}
            whole = schemas[body["$ref"].rpartition("/")[2]] if "$ref" in body else body
            # An empty body means an empty object, so only a list or a required field requires a
            # body.
            required = bool(whole.get("required")) or "items" in whole
            operation["requestBody"] = {"required": required, "content": content}
    described["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "brn_…"},
        "session": {"type": "apiKey", "in": "cookie", "name": "brain_session"},
    }
    described["security"] = [{"token": []}, {"session": []}]
    return described


def _operations(described: Schema) -> Iterator[tuple[str, Schema]]:
    for path in described["paths"].values():
        yield from path.items()


def _tell_problems(operation: Schema) -> None:
    for status, response in operation["responses"].items():
        if status >= "400":
            response["content"] = {MEDIA_TYPE: {"schema": _PROBLEM}}
            response["description"] = response.get("description") or "a problem"


def _tell_fields(operation: Schema, schemas: Schema) -> None:
    """Allow only names of the items' fields in ``fields=``, and make all these fields optional."""
    for parameter in operation.get("parameters", ()):
        if parameter["name"] == "fields":
            answer = operation["responses"]["200"]["content"]["application/json"]
            page = schemas[answer["schema"]["$ref"].rpartition("/")[2]]
            items = page["properties"]["items"]["items"]["$ref"]
            known = list(schemas[items.rpartition("/")[2]]["properties"])
            name = f" *({'|'.join(known)})? *"
            parameter["schema"]["pattern"] = f"^{name}(,{name})*$"
            part = {"type": "object", "propertyNames": {"enum": known}}
            properties = page["properties"] | {"items": {"type": "array", "items": part}}
            answer["schema"] = {"anyOf": [answer["schema"], page | {"properties": properties}]}


def _body(operation: str, schemas: Schema) -> Schema | None:
    if operation == "submit":
        return _added(schemas, "JobDocument", _camel_cased(_schema(JobDocument)))
    if operation == "put_policy":
        return _added(schemas, "DocumentPoolShares", _camel_cased(_schema(PoolShares)))
    if operation == "conditions":
        # Unlike answers of the same type, these may leave out fields with defaults.
        return {"type": "array", "items": _schema(ObjectCondition)}
    if operation == "take":
        return _batch(schemas)
    if operation in _BODIES:
        kind = _BODIES[operation]
        schema = _schema(kind)
        if kind in _ASKED:
            for part in (schema, *schema.get("$defs", {}).values()):
                part["additionalProperties"] = False
        return _added(schemas, kind.__name__, schema)
    return None


def _schema(kind: type) -> Schema:
    return TypeAdapter(kind).json_schema(
        ref_template="#/components/schemas/{model}", mode="validation"
    )


def _added(schemas: Schema, name: str, schema: Schema) -> Schema:
    """Add a schema and the schemas it refers to to the components; return a reference to it."""
    for part, described in ((name, schema), *schema.pop("$defs", {}).items()):
        for key, rule in _RULES.get(part, {}).items():
            described["properties"][key] |= rule
        if part in _TOGETHER:
            described["anyOf"] = _TOGETHER[part]
        schemas.setdefault(part, described)
    return {"$ref": f"#/components/schemas/{name}"}


def _batch(schemas: Schema) -> Schema:
    """Return the schema of a telemetry body: a batch whose samples name their kind."""
    samples = []
    for name, kind in wire.SAMPLE_KINDS.items():
        schema = _schema(kind)
        schema["properties"]["kind"] = {"const": name, "type": "string"}
        schema["required"] = sorted([*schema["required"], "kind"])
        samples.append(_added(schemas, kind.__name__, schema))
    batch = {
        "type": "object",
        "properties": {
            "v": {"const": wire.VERSION, "type": "integer"},
            "sent_at": {"type": "string", "format": "date-time"},
            "samples": {"type": "array", "items": {"anyOf": samples}},
        },
        "required": ["v", "sent_at", "samples"],
    }
    return _added(schemas, "Batch", batch)


def _camel_cased(schema: Schema) -> Schema:
    """Return a document's schema with camelCase keys; each part gets a separate schema."""
    parts = {name for name, part in schema["$defs"].items() if "properties" in part}
    text = json.dumps(schema)
    for name in parts:
        text = text.replace(f'schemas/{name}"', f'schemas/Document{name}"')
    renamed: Schema = json.loads(text)
    renamed["$defs"] = {
        f"Document{name}" if name in parts else name: part
        for name, part in renamed["$defs"].items()
    }
    for part in (renamed, *renamed["$defs"].values()):
        if "properties" in part:
            part["properties"] = {camel(k): v for k, v in part["properties"].items()}
            for one in part["properties"].values():
                if isinstance(one.get("default"), dict):
                    one["default"] = {camel(k): v for k, v in one["default"].items()}
            part["required"] = [camel(key) for key in part.get("required", [])]
            part["additionalProperties"] = False
    return renamed
