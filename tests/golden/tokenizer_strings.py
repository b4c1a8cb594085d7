"""The texts on which tokenizers are compared: deterministic, in many scripts, with the odd corners."""

import random

ENGLISH = [
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure we'll see they've done it; she'd say it's fine, isn't it?",
    "DON'T SHOUT, I'M HERE, WE'LL GO, THEY'RE LATE",
    "An agent keeps the whole transcript and reads what it needs.",
    "e.g. 3.14159, 1,000,000 and 50% of $20.50 on 2024-02-29 at 07:05:09 UTC+01:00",
    "naïve café façade, coöperate, Zoë, Ångström, Łódź, İstanbul, ß",
    "snake_case camelCase PascalCase kebab-case SCREAMING_SNAKE",
    "user@example.org https://example.org/a/b?c=d&e=%20f#g",
    "“Curly” ‘quotes’ — dashes – ellipsis… and †daggers‡",
]
CHINESE = [
    "你好，世界！",
    "今天的天气怎么样？我想知道明天会不会下雨。",
    "人工智能模型需要很多内存来保存历史对话。",
    "价格是￥１２３．４５，折扣为百分之二十。",
    "繁體中文：資料庫、記憶體、程式碼。",
    "中英mixed混合text测试123",
    "「引号」《书名》（括号）、顿号；分号：冒号",
    "日本語のテキスト、カタカナとひらがな。",
    "한국어 문장도 하나 있어야 합니다.",
    "𠮷野家で𩸽を食べる",
]
OTHER = [
    "Привет, как дела? Всё хорошо.",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "שלום עולם",
    "नमस्ते दुनिया, यह एक परीक्षण है।",
    "สวัสดีชาวโลก",
    "Γειά σου Κόσμε",
    "Xin chào thế giới",
    "e\u0301 a\u0308 combining n\u0303 marks \u0301",
    "\u200bzero\u200cwidth\u200djoiners\ufeff",
    "½ ² Ⅷ ① ٣ ३ 𝟘 𝓐 ﬁ",
]
CODE = [
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))\n",
    "int main(int argc, char** argv) {\n\treturn argc > 1 ? 0 : -1;\n}\n",
    "SELECT a.id, COUNT(*) FROM a JOIN b ON a.id=b.a_id WHERE b.x IS NOT NULL GROUP BY 1;",
    '{"name": "search", "arguments": {"query": "kv cache", "limit": 10}}',
    "<div class=\"a b\"><p>text</p></div><!-- note -->",
    "for i in $(seq 1 10); do echo \"$i\" >> out.txt; done && ls -la | grep '^d'",
    "x = [i for i in range(0x10, 0b11) if i % 2 == 0 and not i & 1]",
    "\\begin{equation} \\sum_{i=0}^{n} x_i^2 \\end{equation}",
    "let v: Vec<&'static str> = vec![\"a\"; 3]; // comment",
    "---\nkey: value\nlist:\n  - 1\n  - two\n",
    "#include <vector>\r\n#define X(a, b) ((a)+(b))\r\n",
    "a+b==c||d&&!e^f~g<<h>>i",
]
EMOJI = [
    "😀",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️‍🔥 🏳️‍🌈",
    "Good job 🎉🎉🎉!!! 🚀",
    "1️⃣ 2️⃣ #️⃣",
    "☺︎ ☺️ ♥ ✓ ✗ ➜ ★",
    "text😀text 😀 text",
]
SPACES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r", " \n", "\n ",
    " a", "a ", "  a", "a  b", "a   b", "a\n\nb", "a \n b", "\ta\t", "a\u00a0b", "\u3000a\u3000",
    "a\u2003b", "   \n   \n", "a\n\n\n    b", " \t \t ", "x\x0by\x0cz", "\u2028line\u2029para", "\x85",
    "trailing   ", "   leading", "a" + " " * 40 + "b", "\n" * 20, " " * 100, "\t" * 33 + "x",
]
DIGITS = [
    "0", "12", "123", "1234", "12345", "1234567890", "3.14", "1e-5", "007", "1,234,567.89", "v1.2.3",
    "a1b22c333", "2024年12月31日", "١٢٣٤", "１２３４５", "12 345", " 12", "x=42;", "100%", "#1",
]
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n",
    "a<|im_end|>b", "<|im_end", "<|im_<|im_end|>|>", "<s>", "</s>", "<unk>", "<0x0A>", "[INST]", "<|", "|>",
]
INVALID = [
    b"\xff", b"\xfe\xff", b"a\x80b", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"ok\xf0\x9fok",
    b"\xe2\x28\xa1", b"\xc3\x28", b"\x80\x81\x82", b"text \xed\xff end", b"\xf8\x88\x80\x80\x80",
    "日本".encode()[:-1], "😀😀".encode()[:-2], b"\x00", b"a\x00b", b"\x00\x01\x02\x1f\x7f",
    "混合".encode() + b"\xe4" + b" end", b"\xe4\xbd hello", b"\xbf\xbe\xbd text",
]


def strings() -> list[bytes]:
    """At least 600 distinct texts, the same at each call."""
    groups = [ENGLISH, CHINESE, OTHER, CODE, EMOJI, SPACES, DIGITS, SPECIAL]
    out = [s.encode() for group in groups for s in group] + list(INVALID)
    pool = [s for group in groups for s in group if s]
    rng = random.Random(20240229)
    glue = ["", " ", "\n", "  ", "\t", ", ", "\n\n", ":", "-"]
    while len(out) < 560:
        parts = rng.choices(pool, k=rng.randint(2, 4))
        text = rng.choice(glue).join(p[: rng.randint(1, len(p))] for p in parts)
        out.append(text.encode())
    alphabet = "abzAZ09 \n\t'.,!?-_/\\\"(){}[]<>|=+*&^%$#@~`;:éñ你好世界日本한글ЖФ😀👍\u00a0\u0301"
    for _ in range(80):
        out.append("".join(rng.choices(alphabet, k=rng.randint(1, 60))).encode())
    for _ in range(40):
        data = bytearray(rng.choice(pool).encode())
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice([0x80, 0xBF, 0xC3, 0xE2, 0xF0, 0xFF, 0xF5])
        out.append(bytes(data))
    return list(dict.fromkeys(out))


def training_text() -> list[str]:
    """Texts on which the small test vocabularies are trained."""
    rng = random.Random(7)
    words = [w for group in (ENGLISH, CHINESE, OTHER, CODE, EMOJI, DIGITS) for s in group for w in s.split()]
    lines = [s for group in (ENGLISH, CHINESE, OTHER, CODE, EMOJI, DIGITS) for s in group]
    return lines * 3 + [" ".join(rng.choices(words, k=12)) for _ in range(400)]
