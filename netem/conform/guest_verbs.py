"""An application over libibverbs, for an endpoint whose kernel has RDMA: runs inside a guest.

It is sent there as it is and needs the standard library alone. Structures are those of
libibverbs 1.14 (rdma-core 44) on 64 bits; `post_send`, `post_recv` and `poll_cq` are no
functions of the library but pointers in its context, at places that are part of its ABI.
"""

import ctypes
import ipaddress
import mmap
from ctypes import c_int, c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, ClassVar

_SIZES = 1 << 16, 1 << 17, 1 << 17  # bytes: what a peer may use, what is sent, what is received
_POLL_CQ, _POST_SEND, _POST_RECV = 8 + 11 * 8, 8 + 25 * 8, 8 + 26 * 8  # in ibv_context
_QP_NUM, _LKEY, _RKEY = 52, 36, 40  # in ibv_qp and ibv_mr
_STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
_TYPES = {"RC": 2, "UC": 3, "UD": 4}
_RIGHTS = {"local": 1, "write": 2, "read": 4, "atomic": 8, "none": 0}
_MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
_OPCODES = {"write": 0, "send": 2, "read": 4, "cmp_swap": 5, "fetch_add": 6}
_SEND_WITH_INV = 9
_FENCE, _SIGNALED, _SOLICITED, _INLINE = 1, 2, 4, 8
_STATUS = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR",
    "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
    "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
)  # fmt: skip
_COMPLETED = {
    0: "SEND", 1: "RDMA_WRITE", 2: "RDMA_READ", 3: "COMP_SWAP", 4: "FETCH_ADD", 128: "RECV",
    129: "RECV_RDMA_WITH_IMM",
}  # fmt: skip
# Attributes by the bit of the mask that says they are there, and what each step needs.
_BITS = {
    "qp_state": 0, "qp_access_flags": 3, "pkey_index": 4, "port_num": 5, "qkey": 6,
    "ah_attr": 7, "path_mtu": 8, "timeout": 9, "retry_cnt": 10, "rnr_retry": 11, "rq_psn": 12,
    "max_rd_atomic": 13, "min_rnr_timer": 15, "sq_psn": 16, "max_dest_rd_atomic": 17,
    "dest_qp_num": 20,
}  # fmt: skip
_NEEDS = {
    ("RC", "INIT"): "pkey_index port_num qp_access_flags",
    ("RC", "RTR"): "ah_attr path_mtu dest_qp_num rq_psn max_dest_rd_atomic min_rnr_timer",
    ("RC", "RTS"): "sq_psn timeout retry_cnt rnr_retry max_rd_atomic",
    ("UC", "INIT"): "pkey_index port_num qp_access_flags",
    ("UC", "RTR"): "ah_attr path_mtu dest_qp_num rq_psn",
    ("UC", "RTS"): "sq_psn",
    ("UD", "INIT"): "pkey_index port_num qkey",
    ("UD", "RTR"): "",
    ("UD", "RTS"): "sq_psn",
}


class _Cap(ctypes.Structure):
    _fields_: ClassVar = [(f"max_{n}", c_uint32) for n in ("swr", "rwr", "sse", "rse", "inl")]


class _InitAttr(ctypes.Structure):
    _fields_: ClassVar = [
        ("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p),
        ("srq", c_void_p), ("cap", _Cap), ("qp_type", c_int), ("sq_sig_all", c_int),
    ]  # fmt: skip


class _Grh(ctypes.Structure):
    _fields_: ClassVar = [
        ("dgid", c_uint64 * 2), ("flow_label", c_uint32), ("sgid_index", c_uint8),
        ("hop_limit", c_uint8), ("traffic_class", c_uint8),
    ]  # fmt: skip


class _Ah(ctypes.Structure):
    _fields_: ClassVar = [
        ("grh", _Grh), ("dlid", c_uint16), ("sl", c_uint8), ("src_path_bits", c_uint8),
        ("static_rate", c_uint8), ("is_global", c_uint8), ("port_num", c_uint8),
    ]  # fmt: skip


class _Attr(ctypes.Structure):
    _fields_: ClassVar = [
        ("qp_state", c_int), ("cur_qp_state", c_int), ("path_mtu", c_int), ("mig", c_int),
        ("qkey", c_uint32), ("rq_psn", c_uint32), ("sq_psn", c_uint32),
        ("dest_qp_num", c_uint32), ("qp_access_flags", c_uint), ("cap", _Cap),
        ("ah_attr", _Ah), ("alt_ah_attr", _Ah), ("pkey_index", c_uint16),
        ("alt_pkey_index", c_uint16), ("en_sqd_async_notify", c_uint8),
        ("sq_draining", c_uint8), ("max_rd_atomic", c_uint8), ("max_dest_rd_atomic", c_uint8),
        ("min_rnr_timer", c_uint8), ("port_num", c_uint8), ("timeout", c_uint8),
        ("retry_cnt", c_uint8), ("rnr_retry", c_uint8), ("alt_port_num", c_uint8),
        ("alt_timeout", c_uint8), ("rate_limit", c_uint32),
    ]  # fmt: skip


class _Sge(ctypes.Structure):
    _fields_: ClassVar = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class _Atomic(ctypes.Structure):
    _fields_: ClassVar = [
        ("remote_addr", c_uint64), ("compare_add", c_uint64), ("swap", c_uint64),
        ("rkey", c_uint32),
    ]  # fmt: skip


class _Rdma(ctypes.Structure):
    _fields_: ClassVar = [("remote_addr", c_uint64), ("rkey", c_uint32)]


class _Ud(ctypes.Structure):
    _fields_: ClassVar = [("ah", c_void_p), ("qpn", c_uint32), ("qkey", c_uint32)]


class _Wr(ctypes.Union):
    _fields_: ClassVar = [("rdma", _Rdma), ("atomic", _Atomic), ("ud", _Ud)]


class _SendWr(ctypes.Structure):
    _fields_: ClassVar = [
        ("wr_id", c_uint64), ("next", c_void_p), ("sg_list", c_void_p), ("num_sge", c_int),
        ("opcode", c_int), ("flags", c_uint), ("imm", c_uint32), ("wr", _Wr),
        ("unused", c_uint64 * 8),
    ]  # fmt: skip


class _RecvWr(ctypes.Structure):
    _fields_: ClassVar = [
        ("wr_id", c_uint64), ("next", c_void_p), ("sg_list", c_void_p), ("num_sge", c_int),
    ]  # fmt: skip


class _Wc(ctypes.Structure):
    _fields_: ClassVar = [
        ("wr_id", c_uint64), ("status", c_int), ("opcode", c_int), ("vendor_err", c_uint32),
        ("byte_len", c_uint32), ("imm", c_uint32), ("qp_num", c_uint32), ("src_qp", c_uint32),
        ("flags", c_uint), ("pkey_index", c_uint16), ("slid", c_uint16), ("sl", c_uint8),
        ("path_bits", c_uint8),
    ]  # fmt: skip


class _RefusedError(Exception):
    pass


class _UnsupportedError(Exception):
    pass


class _Memory:
    """Pages that are registered anew for each queue pair."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.map = mmap.mmap(-1, size)
        self.addr = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.l_key = self.r_key = 0


class _Verbs:
    """The device, and one queue pair at a time."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        number = c_int()
        self._lib.ibv_get_device_list.restype = ctypes.POINTER(c_void_p)
        device = self._lib.ibv_get_device_list(ctypes.byref(number))[0]
        self._context = self.made("ibv_open_device", device)
        self._pd = self.made("ibv_alloc_pd", self._context)
        self._call = {
            offset: ctypes.CFUNCTYPE(c_int, c_void_p, *kinds)(_u64(self._context + offset))
            for offset, kinds in (
                (_POLL_CQ, (c_int, c_void_p)),
                (_POST_SEND, (c_void_p, c_void_p)),
                (_POST_RECV, (c_void_p, c_void_p)),
            )
        }
        self._pattern = Path("/lab/pattern").read_bytes()
        self._main, self._local, self._landing = (_Memory(size) for size in _SIZES)
        self._local.map[:] = self._pattern[: self._local.size]
        self._mrs: list[int] = []
        self._qp = 0

    def made(self, function: str, *arguments: Any) -> int:  # noqa: ANN401 - of C
        """Call a function that returns a pointer."""
        call = getattr(self._lib, function)
        call.restype = c_void_p
        found: int | None = call(*(_pointer(each) for each in arguments))
        if not found:
            raise _RefusedError(f"{function}: errno {ctypes.get_errno()}")
        return found

    # -- what an Application does ----------------------------------------------------------

    def open(self, wants: dict[str, Any]) -> dict[str, int]:
        for name in ("msn", "window"):
            if wants[name]:
                raise _UnsupportedError(f"ibv_modify_qp sets no {name}")
        if wants["landing"] > self._landing.size:
            raise _UnsupportedError("the guest has no memory for READs of that size")
        self._wants = wants
        self._state = "RESET"
        self._main.map[:] = bytes(self._main.size)
        for memory, names in (
            (self._main, "write,read,atomic"), (self._local, "local"), (self._landing, "local")
        ):  # fmt: skip
            mr = self._register(self._pd, memory, memory.size, names)
            memory.l_key, memory.r_key = _u32(mr + _LKEY), _u32(mr + _RKEY)
        self._cq = self.made("ibv_create_cq", self._context, 512, None, None, 0)
        init = _InitAttr(send_cq=self._cq, recv_cq=self._cq, qp_type=_TYPES[wants["service"]])
        init.cap = _Cap(128, 128, 1, 1, 256)
        self._qp = self.made("ibv_create_qp", self._pd, ctypes.byref(init))
        key, va = self._main.r_key, self._main.addr
        return {"qp_num": _u32(self._qp + _QP_NUM), "va": va, "key": key}

    def connect(self, peer: dict[str, Any]) -> None:
        self._peer = peer
        for state in ("INIT", "RTR", "RTS"):
            if self._state == self._wants["state"]:
                return
            self._modify(state)

    def act(self, name: str, fields: dict[str, Any]) -> dict[str, int]:
        if name == "recv":
            self._recv(fields)
        elif name in _OPCODES:
            for count in range(fields.get("count", 1)):
                self._send(name, fields, count)
        elif name == "fill":
            self._main.map[:] = self._pattern[: self._main.size]
        elif name == "region":
            return self._further(fields)
        elif name == "step_up":
            for state in ("INIT", "RTR", "RTS")[_STATES.index(self._state) :]:
                self._modify(state)
        elif name.startswith("to_"):
            self._modify(name[3:].upper(), given="attributes" not in fields)
        else:
            raise _UnsupportedError(f"no application of libibverbs here does {name}")
        return {}

    def told(self) -> list[dict[str, Any]]:
        found = []
        wc = _Wc()
        while self._call[_POLL_CQ](self._cq, 1, ctypes.addressof(wc)) == 1:
            told: dict[str, Any] = {
                "name": "completion", "wr": wc.wr_id, "status": _STATUS[wc.status],
            }  # fmt: skip
            if wc.status == 0:
                told |= {"opcode": _COMPLETED[wc.opcode], "length": wc.byte_len}
                told |= {"srcqp": wc.src_qp}
                if wc.flags & 2:
                    told["imm"] = int.from_bytes(wc.imm.to_bytes(4, "little"), "big")
                elif wc.flags & 8:
                    told["inv"] = wc.imm
            found.append(told)
        return found

    def memory(self, at: int, size: int) -> str:
        return self._main.map[at : at + size].hex()

    def close(self) -> None:
        if self._qp:
            self._lib.ibv_destroy_qp(c_void_p(self._qp))
            self._lib.ibv_destroy_cq(c_void_p(self._cq))
        for mr in self._mrs:
            self._lib.ibv_dereg_mr(c_void_p(mr))
        self._qp, self._mrs = 0, []

    # -- parts of that ---------------------------------------------------------------------

    def _register(self, pd: int, memory: _Memory, size: int, names: str) -> int:
        length = ctypes.c_size_t(size)
        mr = self.made("ibv_reg_mr", pd, memory.addr, length, 1 | _rights(names))
        self._mrs.append(mr)
        return mr

    def _further(self, fields: dict[str, Any]) -> dict[str, int]:
        """Register the beginning of the main region once more, under a key of its own."""
        if "inv" in fields:
            raise _UnsupportedError("ibv_reg_mr makes no region that a peer may invalidate")
        pd = self.made("ibv_alloc_pd", self._context) if "foreign" in fields else self._pd
        names = str(fields.get("access", "write,read,atomic"))
        mr = self._register(pd, self._main, int(fields.get("length", 64)), names)
        return {"key": _u32(mr + _RKEY)}

    def _modify(self, state: str, *, given: bool = True) -> None:
        attr, mask = _Attr(qp_state=_STATES.index(state)), 1
        needs = _NEEDS.get((self._wants["service"], state), "") if given else ""
        values = self._values()
        for name in needs.split():
            setattr(attr, name, values[name])
            mask |= 1 << _BITS[name]
        failed = self._lib.ibv_modify_qp(c_void_p(self._qp), ctypes.byref(attr), mask)
        if failed:
            raise _RefusedError(f"ibv_modify_qp to {state}: errno {failed}")
        self._state = state

    def _values(self) -> dict[str, Any]:
        wants = self._wants
        return {
            "qp_access_flags": _rights(str(wants["access"])), "pkey_index": 0, "port_num": 1,
            "qkey": wants["qkey"], "ah_attr": self._ah(), "path_mtu": _MTUS[wants["mtu"]],
            "dest_qp_num": self._peer["qp_num"], "rq_psn": wants["rq_psn"],
            "sq_psn": wants["sq_psn"], "max_dest_rd_atomic": wants["max_dest_rd"],
            "max_rd_atomic": wants["max_rd"], "min_rnr_timer": wants["min_rnr"],
            "timeout": wants["timeout"], "retry_cnt": wants["retry"],
            "rnr_retry": wants["rnr_retry"],
        }  # fmt: skip

    def _ah(self) -> _Ah:
        grh = _Grh(sgid_index=_gid_index(self._peer["own_ip"]), hop_limit=64)
        ctypes.memmove(grh.dgid, _gid(self._peer["ip"]), 16)
        return _Ah(grh=grh, is_global=1, port_num=1)

    def _recv(self, fields: dict[str, Any]) -> None:
        where = self._landing
        sge = _Sge(where.addr + fields.get("at", 0), fields.get("length", 0), where.l_key)
        wr = _RecvWr(wr_id=fields.get("wr", 100), sg_list=ctypes.addressof(sge), num_sge=1)
        self._post(_POST_RECV, wr)

    def _send(self, name: str, fields: dict[str, Any], count: int) -> None:
        length = fields.get("length", 8)
        where = self._local if name in {"send", "write"} else self._landing
        sge = _Sge(where.addr + fields.get("at", 0), length, where.l_key)
        flags = 0 if "unsignaled" in fields else _SIGNALED
        flags |= _FENCE * ("fence" in fields) | _SOLICITED * ("se" in fields)
        flags |= _INLINE * ("inline" in fields)
        wr = _SendWr(
            wr_id=fields.get("wr", 1) + count, sg_list=ctypes.addressof(sge),
            num_sge=1 if length else 0, opcode=_OPCODES[name], flags=flags,
        )  # fmt: skip
        if "imm" in fields:
            wr.opcode += 1
            wr.imm = int.from_bytes(fields["imm"].to_bytes(4, "big"), "little")
        elif "inv" in fields:
            wr.opcode, wr.imm = _SEND_WITH_INV, fields["inv"]
        addr, key = self._peer["va"] + fields.get("va", 0), self._peer["key"]
        if self._wants["service"] == "UD":
            ah = self._ah()
            handle = self.made("ibv_create_ah", self._pd, ctypes.byref(ah))
            wr.wr.ud = _Ud(handle, self._peer["qp_num"], self._wants["qkey"])
        elif name in {"cmp_swap", "fetch_add"}:
            add = fields.get("compare", fields.get("add", 0))
            wr.wr.atomic = _Atomic(addr, add, fields.get("swap", 0), key)
        else:
            wr.wr.rdma = _Rdma(addr, key)
        self._post(_POST_SEND, wr)

    def _post(self, offset: int, wr: ctypes.Structure) -> None:
        bad = c_void_p()
        failed = self._call[offset](self._qp, ctypes.addressof(wr), ctypes.addressof(bad))
        if failed:
            raise _RefusedError(f"post: errno {failed}")


def _rights(names: str) -> int:
    found = 0
    for name in names.split(","):
        found |= _RIGHTS[name]
    return found


def _gid(ip: str) -> bytes:
    address = ipaddress.ip_address(ip)
    return bytes(10) + b"\xff\xff" + address.packed if address.version == 4 else address.packed


def _gid_index(ip: str) -> int:
    wanted = _gid(ip)
    for index in range(16):
        path = Path(f"/sys/class/infiniband/rxe0/ports/1/gids/{index}")
        if ipaddress.IPv6Address(path.read_text().strip()).packed == wanted:
            return index
    raise _UnsupportedError(f"the device has no GID for {ip}")


def _pointer(value: Any) -> Any:  # noqa: ANN401 - of C
    return c_void_p(value) if isinstance(value, int) and value > 0xFFFF else value


def _u32(address: int) -> int:
    return c_uint32.from_address(address).value


def _u64(address: int) -> int:
    return c_uint64.from_address(address).value


_opened: list[_Verbs] = []


def call(do: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Do one thing of an application, and say how it ended, as `pipe.unwrapped` wants it."""
    try:
        if not _opened:
            _opened.append(_Verbs())
        return {"value": getattr(_opened[0], do)(**arguments)}
    except _RefusedError as error:
        return {"refused": str(error)}
    except _UnsupportedError as error:
        return {"unsupported": str(error)}
