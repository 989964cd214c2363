"""The OpenAPI 3.1 document: ``python -m brain.api > docs/reference/openapi.json``.

Answers are described by the dataclasses of ``brain.views`` and ``brain.types`` through pydantic.
Bodies are read by ``brain.wire``, so their schemas are put in here.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from brain import wire
from brain.api.deps import Who
from brain.api.problems import MEDIA_TYPE
from brain.api.routes.access import CodeRequest, SignIn, TokenRequest
from brain.api.routes.fleet import FreezeRequest
from brain.types.document import NAME
from brain.types.job import JobDocument
from brain.types.record import Role
from brain.types.resources import Node
from brain.types.sharing import PoolShares
from brain.types.world import ReplicaReport, WorldReport
from brain.views import EstimateRequest, JobEdit, PlanDecision, ResizeRequest, ScalerAnswer

router = APIRouter(prefix="/api/v1", tags=["service"])

#: What the routes read from their bodies, beside telemetry and the job document.
_BODIES: Mapping[str, type] = {
    "report_world": WorldReport,
    "report_replicas": ReplicaReport,
    "answer_request": ScalerAnswer,
    "put_node": Node,
    "put_policy": PoolShares,
    "estimate": EstimateRequest,
    "resize": ResizeRequest,
    "edit": JobEdit,
    "approve": PlanDecision,
    "reject": PlanDecision,
    "rollback": PlanDecision,
    "freeze": FreezeRequest,
    "mint": TokenRequest,
    "new_code": CodeRequest,
    "sign_in": SignIn,
}
Schema = dict[str, Any]

#: Rules of a field that its type does not tell.
_RULES: Mapping[str, Mapping[str, Schema]] = {
    "TokenRequest": {
        "name": {"pattern": r"\S"},
        "role": {"enum": [role.value for role in Role if role is not Role.AGENT]},
        "days": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]},
    },
    "JobDocument": {"name": {"pattern": NAME}, "project": {"pattern": NAME}},
    "EstimateRequest": {"document": {"$ref": "#/components/schemas/JobDocument"}},
}
#: Rules over several fields.
_TOGETHER: Mapping[str, Schema] = {
    "FreezeRequest": {
        "anyOf": [
            {"properties": {"scope": {"const": "all"}}},
            {"properties": {"target": {"minLength": 1}}, "required": ["target"]},
        ]
    }
}
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
#: What may be said to any request with a body.
_OF_BODIES = {"408": {"description": "TooSlow"}, "413": {"description": "TooLarge"}}


@router.get("/openapi.json", include_in_schema=False)
def served(request: Request, who: Who) -> Response:
    """This document."""
    return Response(as_text(request.app), media_type="application/json")


def operation_id(route: APIRoute) -> str:
    """The name of the function, which is unique over all routers (a test looks)."""
    return route.name


def as_text(app: FastAPI) -> str:
    """The document as it is kept in ``docs/reference/openapi.json``."""
    return json.dumps(document(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def document(app: FastAPI) -> Schema:
    """The document of an app, with bodies, problems and how to sign in."""
    described = deepcopy(app.openapi())
    schemas: Schema = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for schema in schemas.values():
        # Answers are written whole: what has a default is always there, too.
        if "properties" in schema:
            schema["required"] = sorted(schema["properties"])
    for method, operation in _operations(described):
        if method != "get":
            operation["responses"].update(_OF_BODIES | operation["responses"])
        _tell_problems(operation)
        if (body := _body(operation["operationId"], schemas)) is not None:
            content = {"application/json": {"schema": body}}
            named = schemas[body["$ref"].rpartition("/")[2]]
            required = bool(named.get("required"))
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


def _body(operation: str, schemas: Schema) -> Schema | None:
    if operation == "submit":
        return _added(schemas, "JobDocument", _camel_cased(_schema(JobDocument)))
    if operation == "take":
        return _batch(schemas)
    if operation in _BODIES:
        kind = _BODIES[operation]
        return _added(schemas, kind.__name__, _schema(kind))
    return None


def _schema(kind: type) -> Schema:
    return TypeAdapter(kind).json_schema(
        ref_template="#/components/schemas/{model}", mode="validation"
    )


def _added(schemas: Schema, name: str, schema: Schema) -> Schema:
    """Put a schema and what it refers to among the components; return a reference to it."""
    for key, rule in _RULES.get(name, {}).items():
        schema["properties"][key] = schema["properties"][key] | rule
    schema |= _TOGETHER.get(name, {})
    for inner, definition in schema.pop("$defs", {}).items():
        schemas.setdefault(inner, definition)
    schemas.setdefault(name, schema)
    return {"$ref": f"#/components/schemas/{name}"}


def _batch(schemas: Schema) -> Schema:
    """The body of telemetry: a batch whose samples say their kind."""
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
    """A document's schema with the keys that people write; its parts get names of their own."""
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
            part["properties"] = {wire.camel(k): v for k, v in part["properties"].items()}
            for one in part["properties"].values():
                if isinstance(one.get("default"), dict):
                    one["default"] = {wire.camel(k): v for k, v in one["default"].items()}
            part["required"] = [wire.camel(key) for key in part.get("required", [])]
            part["additionalProperties"] = False
    return renamed
