"""JA4 of the ClientHello on standard input, as FoxIO's specification describes it."""

import hashlib
import struct
import sys


def main(data):
    hello = b""
    while len(hello) < 4 or len(hello) < 4 + int.from_bytes(hello[1:4], "big"):
        kind, _, length = struct.unpack("!BHH", data[:5])
        assert kind == 22, "a handshake"
        hello, data = hello + data[5 : 5 + length], data[5 + length :]
    version = struct.unpack("!H", hello[4:6])[0]
    at = 38
    at += 1 + hello[at]
    size = struct.unpack("!H", hello[at : at + 2])[0]
    suites = words(hello[at + 2 : at + 2 + size])
    at += 2 + size
    at += 1 + hello[at]
    end = at + 2 + struct.unpack("!H", hello[at : at + 2])[0]
    at += 2
    extensions = {}
    while at < end:
        kind, size = struct.unpack("!HH", hello[at : at + 4])
        extensions[kind] = hello[at + 4 : at + 4 + size]
        at += 4 + size
    kinds = [kind for kind in extensions if not grease(kind)]
    if 43 in extensions:
        version = max(words(extensions[43][1:]))
    protocol = extensions[16][3 : 3 + extensions[16][2]].decode() if 16 in extensions else "00"
    signatures = words(extensions[13][2:]) if 13 in extensions else []
    first = "t%s%s%02d%02d%s%s" % (
        {0x0304: "13", 0x0303: "12"}[version],
        "d" if 0 in extensions else "i",
        len(suites),
        len(kinds),
        protocol[0],
        protocol[-1],
    )
    second = digest(listed(sorted(suites)))
    rest = listed(sorted(kind for kind in kinds if kind not in (0, 16)))
    third = digest(rest + ("_" + listed(signatures) if signatures else ""))
    return "_".join((first, second, third))


def grease(number):
    return number & 0x0F0F == 0x0A0A and number >> 8 == number & 0xFF


def words(data):
    numbers = struct.unpack("!%dH" % (len(data) // 2), data)
    return [number for number in numbers if not grease(number)]


def listed(numbers):
    return ",".join("%04x" % number for number in numbers)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


print(main(sys.stdin.buffer.read()))
