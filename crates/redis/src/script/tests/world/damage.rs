//! Corruption of the store.

use super::super::corruption::{Damage, VICTIM};
use super::World;
use crate::call::{Call, Script};
use crate::script::keys_of;

/// Runs an arbitrary command.
static COMMAND: Script = Script::new("return redis.call(unpack(ARGV))\n");
/// Replaces a piece of a text.
static EDIT: Script = Script::new(
    "local text = redis.pcall('GET', KEYS[1])
     if type(text) ~= 'string' then return 0 end
     local at = math.floor(#text * ARGV[1] / 1000)
     text = string.sub(text, 1, at) .. ARGV[3] .. string.sub(text, at + 1 + ARGV[2])
     redis.call('SET', KEYS[1], text)
     return 1\n",
);
/// Gives all members of a sorted set one score.
static SCORES: Script = Script::new(
    "local all = redis.pcall('ZRANGE', KEYS[1], 0, -1)
     for i = 1, all.err and 0 or #all do redis.call('ZADD', KEYS[1], ARGV[1], all[i]) end
     return 1\n",
);

impl World<'_> {
    /// Corrupts the record or a set of the victim.
    pub(in crate::script::tests) fn damage(&self, damage: &Damage) {
        let key = self.key(VICTIM);
        let at = |index: usize| keys_of(&key, index).last().unwrap_or_default();
        let sheet = &self.rule(VICTIM).params;
        match damage {
            Damage::Bytes(bytes) => self.command(&[b"SET", &key, bytes]),
            Damage::Words { epoch, words } => {
                let text = format!("{}.{epoch} {words}", sheet.fingerprint());
                self.command(&[b"SET", &key, text.as_bytes()]);
            }
            Damage::Edit { at, remove, with } => {
                let args = [at.to_string(), remove.to_string(), with.clone()];
                self.run(&EDIT, key.to_vec(), args.map(String::into_bytes).to_vec());
            }
            Damage::Type { index, kind } => {
                let key = at(*index);
                self.command(&[b"DEL", &key]);
                let rest: &[&[u8]] = match *kind {
                    "HSET" => &[b"field", b"value"],
                    "ZADD" => &[b"1", b"member"],
                    _ => &[b"value"],
                };
                let command = [&[kind.as_bytes(), &key], rest].concat();
                self.command(&command);
            }
            Damage::Member { set, score, name } => {
                let key = at(*set);
                // Fails on another type, which stays.
                let add = [b"ZADD".as_slice(), &key, score.as_bytes(), name];
                let _ = self.try_command(&add);
            }
            Damage::Scores { set, score } => {
                self.run(&SCORES, at(*set), vec![score.clone().into_bytes()]);
            }
            Damage::NoSet { set } => self.command(&[b"DEL", &at(*set)]),
        }
    }

    fn command(&self, words: &[&[u8]]) {
        self.try_command(words).unwrap();
    }

    fn try_command(&self, words: &[&[u8]]) -> Result<(), String> {
        let args = words.iter().map(|word| word.to_vec()).collect();
        let call = Call { script: &COMMAND, keys: vec![words[1].to_vec()], args };
        let said = self.bench.run(self.bench.link.call(&call));
        said.map(|_| ()).map_err(|error| error.to_string())
    }

    fn run(&self, script: &'static Script, key: Vec<u8>, args: Vec<Vec<u8>>) {
        let call = Call { script, keys: vec![key], args };
        self.bench.run(self.bench.link.call(&call)).unwrap();
    }
}
