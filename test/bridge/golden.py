"""Golden vectors of proto/golden against protobuf for Python: each value gives its bytes and back.

  python3 test/bridge/golden.py           checks, and prints how many
  python3 test/bridge/golden.py --write   writes the bytes of all values

Values are in the JSON form of protobuf; maps have at most one entry, so that the bytes are the same
everywhere.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

TOP = pathlib.Path(__file__).resolve().parents[2]
VECTORS = TOP / "proto/golden/vectors.json"


def messages():
    """Classes of every message of proto/, by name."""
    with tempfile.NamedTemporaryFile() as out:
        protos = sorted((TOP / "proto").rglob("*.proto"))
        command = ["protoc", f"-I{TOP / 'proto'}", f"--descriptor_set_out={out.name}", "--include_imports"]
        subprocess.run(command + [str(path) for path in protos], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    # `GetMessages` is what Debian's has, and is gone from newer ones.
    if not hasattr(message_factory, "GetMessages"):
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        names = [file.name for file in files.file]
        found = message_factory.GetMessageClassesForFiles(names, pool)
    else:
        found = message_factory.GetMessages(files.file)
    return {name.rsplit(".", 1)[1]: each for name, each in found.items() if not name.endswith("Entry")}


def main():
    vectors = json.loads(VECTORS.read_text())
    classes = messages()
    missing = set(classes) - {vector["message"] for vector in vectors}
    if missing:
        sys.exit(f"no vector for {sorted(missing)}")
    for vector in vectors:
        message = json_format.ParseDict(vector["value"], classes[vector["message"]]())
        encoded = message.SerializeToString(deterministic=True).hex()
        if "--write" in sys.argv:
            vector["hex"] = encoded
        if vector["hex"] != encoded:
            sys.exit(f"{vector['message']} {vector['value']}: {encoded}, not {vector['hex']}")
        if classes[vector["message"]].FromString(bytes.fromhex(vector["hex"])) != message:
            sys.exit(f"{vector['message']}: the bytes are another message")
    if "--write" in sys.argv:
        lines = ",\n".join("  " + json.dumps(vector) for vector in vectors)
        VECTORS.write_text(f"[\n{lines}\n]\n")
    print(len(vectors))


main()
