"""A pod's volumes as directories of this machine, and its containers' environment."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.quantities import parsed

#: Finds a Secret or ConfigMap by its plural, namespace and name.
Find = Callable[[str, str, str], Json | None]


@dataclass(frozen=True, slots=True)
class Mounts:
    """Where a pod's volumes lie, and how a container calls them."""

    #: volume -> its directory
    directories: Mapping[str, Path]
    #: mount path -> what lies there, the longest path first
    paths: tuple[tuple[str, str], ...] = ()

    def of(self, container: Mapping[str, Any]) -> "Mounts":
        """Return the mounts of one container."""
        paths = {
            mount["mountPath"].rstrip("/"): str(
                self.directories[mount["name"]] / mount.get("subPath", "")
            ).rstrip("/")
            for mount in container.get("volumeMounts") or ()
            if mount["name"] in self.directories
        }
        ordered = sorted(paths.items(), key=lambda item: -len(item[0]))
        return Mounts(self.directories, tuple(ordered))

    def told(self, text: str) -> str:
        """Return ``text`` with mount paths replaced by the directories behind them."""
        marks = {}
        for i, (path, directory) in enumerate(self.paths):
            mark = f"\0{i}\0"
            marks[mark] = directory
            text = _replaced(text, path, mark)
        for mark, directory in marks.items():
            text = text.replace(mark, directory)
        return text


def _replaced(text: str, path: str, mark: str) -> str:
    """Replace ``path`` where it is a whole path or the beginning of one."""
    pieces = text.split(path)
    result = pieces[0]
    for piece in pieces[1:]:
        whole = not piece or not (piece[0].isalnum() or piece[0] in "-_.")
        begins = not result or not (result[-1].isalnum() or result[-1] in "-_./")
        result += (mark if whole and begins else path) + piece
    return result


def prepared(find: Find, pod: Json, directory: Path) -> Mounts:
    """Make a pod's volumes below ``directory``; raises ``LookupError`` for what is missing."""
    directories: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or ():
        if "hostPath" in volume:
            directories[volume["name"]] = Path(volume["hostPath"]["path"])
            continue
        place = directory / "volumes" / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        directories[volume["name"]] = place
        for name, content in _files(find, pod, volume).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
    return Mounts(directories)


def refresh(pod: Json, directory: Path) -> None:
    """Write what the downward API says now, as a kubelet does whenever a pod changes."""
    for volume in pod["spec"].get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            for name, content in _downward(pod, source.get("downwardAPI") or {}).items():
                place = directory / "volumes" / volume["name"] / name
                if place.exists() and place.read_bytes() != content:
                    fresh = place.with_name(f".{place.name}")
                    fresh.write_bytes(content)
                    fresh.replace(place)


def _files(find: Find, pod: Json, volume: Json) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    if "secret" in volume:
        source = volume["secret"]
        data = _secret(find, namespace, source["secretName"], bool(source.get("optional")))
        return _chosen(data, source.get("items"))
    if "configMap" in volume:
        source = volume["configMap"]
        data = _config(find, namespace, source["name"], bool(source.get("optional")))
        return _chosen(data, source.get("items"))
    if "downwardAPI" in volume:
        return _downward(pod, volume["downwardAPI"])
    found: dict[str, bytes] = {}
    for source in (volume.get("projected") or {}).get("sources") or ():
        found |= _projected(find, pod, source)
    return found


def _projected(find: Find, pod: Json, source: Json) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    if "serviceAccountToken" in source:
        account = pod["spec"].get("serviceAccountName", "default")
        token = f"token-of-system:serviceaccount:{namespace}:{account}"
        return {source["serviceAccountToken"]["path"]: token.encode()}
    if "downwardAPI" in source:
        return _downward(pod, source["downwardAPI"])
    # The cluster's certificates are nowhere: this server speaks plain HTTP.
    if "configMap" in source:
        data = _config(find, namespace, source["configMap"]["name"], optional=True)
        return _chosen(data, None)
    if "secret" in source:
        data = _secret(find, namespace, source["secret"]["name"], optional=False)
        return _chosen(data, source["secret"].get("items"))
    return {}


def _downward(pod: Json, source: Json) -> dict[str, bytes]:
    return {
        item["path"]: field_of(pod, item["fieldRef"]["fieldPath"]).encode()
        for item in source.get("items") or ()
        if "fieldRef" in item
    }


def _chosen(data: Mapping[str, bytes], items: list[Json] | None) -> dict[str, bytes]:
    if items is None:
        return dict(data)
    return {item["path"]: data[item["key"]] for item in items}


def _object(find: Find, plural: str, namespace: str, name: str, optional: bool) -> Json:
    found = find(plural, namespace, name)
    if found is None and not optional:
        raise LookupError(f'{plural.removesuffix("s")} "{name}" not found')
    return found or {}


def _secret(find: Find, namespace: str, name: str, optional: bool) -> dict[str, bytes]:
    obj = _object(find, "secrets", namespace, name, optional)
    data = {key: base64.b64decode(text) for key, text in (obj.get("data") or {}).items()}
    return data | {key: text.encode() for key, text in (obj.get("stringData") or {}).items()}


def _config(find: Find, namespace: str, name: str, optional: bool) -> dict[str, bytes]:
    obj = _object(find, "configmaps", namespace, name, optional)
    return {key: text.encode() for key, text in (obj.get("data") or {}).items()}


def field_of(pod: Json, path: str) -> str:
    """Return what ``fieldRef`` names: ``metadata.labels['x']``, ``status.podIP``, …"""
    if "['" in path:
        where, _, rest = path.partition("['")
        return str((pod["metadata"].get(where.partition(".")[2]) or {}).get(rest[:-2], ""))
    if path == "status.hostIP":
        return "127.0.0.1"
    if path == "status.podIPs":
        path = "status.podIP"
    found: Any = pod
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    if isinstance(found, Mapping):
        return "\n".join(f'{key}="{value}"' for key, value in sorted(found.items()))
    return str(found)


def _resource_of(container: Json, reference: Json) -> str:
    where, _, name = reference["resource"].partition(".")
    amount = ((container.get("resources") or {}).get(where) or {}).get(name, "0")
    divisor = parsed(reference.get("divisor") or "1") or 1
    # Rounded up, as Kubernetes does.
    return str(int(-(-parsed(amount) // divisor)))


def environment(find: Find, pod: Json, container: Json, base: Mapping[str, str]) -> dict[str, str]:
    """Return a container's environment over what its image has (``base``)."""
    namespace = pod["metadata"]["namespace"]
    found = dict(base) | {"HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"]}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        if "secretRef" in source:
            name, optional = source["secretRef"]["name"], bool(source["secretRef"].get("optional"))
            data = _secret(find, namespace, name, optional)
        else:
            reference = source["configMapRef"]
            data = _config(find, namespace, reference["name"], bool(reference.get("optional")))
        found |= {prefix + key: value.decode() for key, value in data.items()}
    for variable in container.get("env") or ():
        value = _value(find, pod, container, variable, found)
        if value is not None:
            found[variable["name"]] = value
    return found


def _value(
    find: Find, pod: Json, container: Json, variable: Json, so_far: Mapping[str, str]
) -> str | None:
    source = variable.get("valueFrom")
    namespace = pod["metadata"]["namespace"]
    if source is None:
        text: str = variable.get("value") or ""
        for name, value in so_far.items():
            text = text.replace(f"$({name})", value)
        return text
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return _resource_of(container, source["resourceFieldRef"])
    for kind, read in (("secretKeyRef", _secret), ("configMapKeyRef", _config)):
        if kind in source:
            reference = source[kind]
            optional = bool(reference.get("optional"))
            data = read(find, namespace, reference["name"], optional)
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if not optional:
                raise LookupError(f"couldn't find key {reference['key']} in {reference['name']}")
    return None
