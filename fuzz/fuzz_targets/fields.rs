//! Structure-aware mutations: a message is parsed as a tree, one node is changed, and the tree is
//! encoded with correct lengths.

/// A field; bytes that parse as a message are one.
#[derive(Clone)]
enum Field {
    Number(u64, u64),
    Raw(u64, Vec<u8>),
    Text(u64, Vec<u8>),
    Message(u64, Vec<Self>),
}

/// Boundary values.
const NUMBERS: [u64; 10] =
    [0, 1, 2, 7, 8, u32::MAX as u64, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX];
const DEPTH_MAX: usize = 6;

/// The bytes with one node changed; `None` if they are not a message.
pub(crate) fn mutated(bytes: &[u8], seed: u32) -> Option<Vec<u8>> {
    let mut fields = read(bytes, 0).filter(|fields| !fields.is_empty())?;
    let mut rng = Rng(u64::from(seed) | 1);
    change(&mut fields, &mut rng);
    let mut out = Vec::new();
    fields.iter().for_each(|field| write(field, &mut out));
    Some(out)
}

fn change(fields: &mut Vec<Field>, rng: &mut Rng) {
    let at = rng.below(fields.len());
    if let Field::Message(_, inside) = &mut fields[at]
        && !inside.is_empty()
        && rng.below(3) > 0
    {
        return change(inside, rng);
    }
    let other = rng.below(fields.len());
    match rng.below(7) {
        0 => fields.insert(other, fields[at].clone()),
        1 => drop(fields.remove(at)),
        2 => fields.swap(at, other),
        3 => fields.insert(at, Field::Number(8 * (1 + rng.below(5) as u64), rng.number())),
        4 => fields.insert(at, Field::Message(8 * (1 + rng.below(5) as u64) + 2, Vec::new())),
        // Nested into itself: unknown fields, groups, a message in place of a text.
        5 => {
            let inside = vec![fields[at].clone()];
            fields[other] = Field::Message(8 * (1 + rng.below(5) as u64) + 2, inside);
        }
        _ => match &mut fields[at] {
            Field::Number(_, number) => *number = rng.number(),
            Field::Raw(key, _) | Field::Text(key, _) | Field::Message(key, _) => {
                *key = 8 * (1 + rng.below(5) as u64) + (*key & 7);
            }
        },
    }
}

fn read(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let raw = |bytes: &mut &[u8], length| {
            let (raw, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(raw.to_vec())
        };
        fields.push(match key & 7 {
            0 => Field::Number(key, varint(&mut bytes)?),
            1 => Field::Raw(key, raw(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let inside = raw(&mut bytes, length)?;
                match read(&inside, depth + 1).filter(|_| depth < DEPTH_MAX) {
                    Some(fields) if !inside.is_empty() => Field::Message(key, fields),
                    _ => Field::Text(key, inside),
                }
            }
            3 | 4 => Field::Raw(key, Vec::new()),
            5 => Field::Raw(key, raw(&mut bytes, 4)?),
            _ => return None,
        });
    }
    Some(fields)
}

fn write(field: &Field, out: &mut Vec<u8>) {
    match field {
        Field::Number(key, number) => {
            put(*key, out);
            put(*number, out);
        }
        Field::Raw(key, raw) => {
            put(*key, out);
            out.extend_from_slice(raw);
        }
        Field::Text(key, text) => {
            put(*key, out);
            put(text.len() as u64, out);
            out.extend_from_slice(text);
        }
        Field::Message(key, fields) => {
            let mut inside = Vec::new();
            fields.iter().for_each(|field| write(field, &mut inside));
            write(&Field::Text(*key, inside), out);
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for index in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Numbers from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % end.max(1) as u64) as usize
    }

    fn number(&mut self) -> u64 {
        match self.below(3) {
            0 => self.below(20) as u64,
            1 => NUMBERS[self.below(NUMBERS.len())],
            _ => self.0,
        }
    }
}
