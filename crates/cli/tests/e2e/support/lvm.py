#!/usr/bin/env python3
"""A stand-in for the programs of LVM and for thin_delta: volumes are files in a folder.

Blocks have 64 KiB. A snapshot shares the blocks of its volume that did not change since the last one. `thin_delta` is
the real one: it gets the metadata that a pool would have. Whatever a real program would refuse ends with an error.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

BLOCK = 64 << 10
HOME = os.environ["LVM_PLAY"]
POOL = "pool"


def path(name):
    return os.path.join(HOME, name)


def fail(why):
    print(f"  {why}", file=sys.stderr)
    sys.exit(5)


def load():
    with open(path("state.json")) as file:
        return json.load(file)


def save(state):
    with open(path("state.json"), "w") as file:
        json.dump(state, file)


def mapped_name(name):
    return "vg-" + name.replace("-", "--")


def refresh(state, name):
    """Gives new blocks to what was written since the last snapshot."""
    volume = state["volumes"][name]
    blocks = volume["blocks"]
    with open(path(f"{name}.dev"), "rb") as file:
        number = 0
        while content := file.read(BLOCK):
            known, digest = blocks.get(str(number)), hashlib.sha256(content).hexdigest()
            if known and known[1] != digest or not known and any(content):
                state["next"] += 1
                blocks[str(number)] = [state["next"], digest]
            number += 1


def group_of(name):
    group, _, volume = name.partition("/")
    if group != "vg":
        fail(f'Volume group "{group}" not found')
    return volume


def lvs(args):
    columns = "lv_name,pool_lv,origin,thin_id,lv_size,lv_path,lv_dm_path"
    assert args[0] == "--config" and args[2:-1] == ["--reportformat", "json", "--units", "b", "--nosuffix", "-o", columns], args
    group_of(args[-1])
    rows = []
    for name, volume in load()["volumes"].items():
        row = {"lv_name": name, "pool_lv": volume["pool"], "origin": volume["origin"], "thin_id": volume["id"]}
        row["lv_size"] = str(volume["size"])
        # A pool has no device for users.
        device = "" if name == POOL else path(f"{name}.dev")
        row |= {"lv_path": device, "lv_dm_path": f"/dev/mapper/{mapped_name(name)}"}
        rows.append(row)
    print(json.dumps({"report": [{"lv": rows}]}))


def lvcreate(args):
    state = load()
    options, (origin,) = args[:-1], args[-1:]
    wanted = ["--snapshot", "--permission", "r", "--setactivationskip", "y", "--addtag", "larder", "--name"]
    assert options[:-1] == wanted, args
    name, origin = options[-1], group_of(origin)
    # Somebody removes another one before it has the lock of the group.
    if os.path.exists(path("removed-meanwhile")):
        with open(path("removed-meanwhile")) as file:
            del state["volumes"][file.read()]
    if name in state["volumes"]:
        fail(f'Logical Volume "{name}" already exists in volume group "vg"')
    refresh(state, origin)
    volume = state["volumes"][origin]
    # The number of a removed volume is that of the next one.
    number = 1 + max(int(other["id"] or 0) for other in state["volumes"].values())
    copy = {"pool": volume["pool"], "origin": origin, "id": str(number), "size": volume["size"]}
    state["volumes"][name] = copy | {"blocks": dict(volume["blocks"]), "is_external": volume["is_external"]}
    # Without a device yet.
    subprocess.run(["cp", "--sparse=always", path(f"{origin}.dev"), path(f"{name}.skipped")], check=True)
    save(state)


def lvchange(args):
    name = group_of(args[-1])
    if name not in load()["volumes"]:
        fail(f'Failed to find logical volume "vg/{name}"')
    if args[:-1] == ["--activate", "y", "--ignoreactivationskip"]:
        os.rename(path(f"{name}.skipped"), path(f"{name}.dev"))
    elif args[:-1] == ["--activate", "n"]:
        if os.path.exists(path(f"{name}.dev")):
            os.rename(path(f"{name}.dev"), path(f"{name}.skipped"))
    else:
        raise AssertionError(args)


def lvremove(args):
    assert args[0] == "--yes", args
    name, state = group_of(args[1]), load()
    assert name.startswith("larder-"), args
    if name not in state["volumes"]:
        fail(f'Failed to find logical volume "vg/{name}"')
    del state["volumes"][name]
    save(state)
    for kind in ["dev", "skipped"]:
        if os.path.exists(path(f"{name}.{kind}")):
            os.remove(path(f"{name}.{kind}"))


def dmsetup(args):
    state = load()
    if args[0] == "table":
        name = next(name for name in state["volumes"] if mapped_name(name) == args[1])
        assert os.path.exists(path(f"{name}.dev")), "it has no device"
        volume = state["volumes"][name]
        external = " 253:9" if volume["is_external"] else ""
        print(f"0 {volume['size'] // 512} thin 253:4 {volume['id']}{external}")
        return
    if args[0] == "status":
        assert args[1:] == [f"{mapped_name(POOL)}-tpool"], args
        place = str(state["place"]) if state["is_held"] else "-"
        print(f"0 2097152 thin-pool 1 10/1024 20/65536 {place} rw discard_passdown queue_if_no_space - 1024")
        return
    assert args[:3] == ["message", f"{mapped_name(POOL)}-tpool", "0"], args
    wanted = {"reserve_metadata_snap": False, "release_metadata_snap": True}[args[3]]
    if state["is_held"] != wanted:
        fail("device-mapper: message ioctl on vg-pool-tpool failed: Device or resource busy")
    state["is_held"] = not wanted
    state["place"] += 1
    save(state)


def thin_delta(args):
    restore, real = os.environ["LVM_THIN_RESTORE"], os.environ["LVM_THIN_DELTA"]
    if args == ["-V"]:
        os.execv(real, [real, *args])
    state = load()
    if os.path.exists(path("thin_delta.hangs")):
        with open(path("thin_delta.hangs"), "w") as file:
            file.write(str(os.getpid()))
        os.rename(path("thin_delta.hangs"), path("thin_delta.hung"))
        time.sleep(600)
    assert args[-1] == f"/dev/mapper/{mapped_name(POOL)}_tmeta" and "--metadata-snap" in args, args
    if not state["is_held"]:
        fail("no current metadata snap")
    devices = []
    for volume in state["volumes"].values():
        if volume["pool"]:
            blocks = sorted((int(block), data) for block, (data, _) in volume["blocks"].items())
            lines = [f'<single_mapping origin_block="{at}" data_block="{data}" time="0"/>' for at, data in blocks]
            head = f'<device dev_id="{volume["id"]}" mapped_blocks="{len(blocks)}" transaction="0" creation_time="0"'
            devices.append("\n".join([head + ' snap_time="0">', *lines, "</device>"]))
    head = '<superblock uuid="" time="0" transaction="1" data_block_size="128" nr_data_blocks="65536">'
    with open(path("meta.xml"), "w") as file:
        file.write("\n".join([head, *devices, "</superblock>"]))
    with open(path("meta"), "wb") as file:
        file.truncate(16 << 20)
    subprocess.run([restore, "-i", path("meta.xml"), "-o", path("meta")], check=True, stdout=subprocess.DEVNULL)
    os.execv(real, [real, *(arg for arg in args[:-1] if arg != "--metadata-snap"), path("meta")])


program = os.path.basename(sys.argv[0])
if os.path.exists(path(f"{program}.fails")):
    fail(f"{program} was told to fail")
{"lvs": lvs, "lvcreate": lvcreate, "lvchange": lvchange, "lvremove": lvremove, "dmsetup": dmsetup}.get(
    program, thin_delta
)(sys.argv[1:])
