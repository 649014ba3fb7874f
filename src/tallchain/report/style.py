"""How the page looks: light and dark, narrow and wide, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1d2329; --soft: #55606b; --line: #d6dce2; --panel: #f4f6f8; --link: #005a9c;
  --good: #0a6b4b; --good-back: #e8f5ef; --care: #7a4f00; --care-back: #fdf3dc; --bad: #a32a12; --bad-back: #fdeae5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --text: #e4e8ec; --soft: #a3aeb9; --line: #39424b; --panel: #1e242a; --link: #7db8e8;
    --good: #6fd3a9; --good-back: #12291f; --care: #f0c060; --care-back: #2d2410; --bad: #ff9d85; --bad-back: #331812;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .2rem 0 .6rem; }
h2 { font-size: 1.25rem; line-height: 1.25; margin: 2.6rem 0 .8rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.4rem 0 .4rem; }
p { margin: .5rem 0; max-width: 46rem; }
code, pre { font: .9em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { background: var(--panel); border-radius: 6px; padding: .7rem .9rem; margin: .6rem 0; white-space: pre-wrap; }
.soft { color: var(--soft); font-size: .92rem; }
.formula { font-size: 1.05rem; max-width: none; }
.box { border: 1px solid; border-left-width: 6px; border-radius: 6px; padding: .8rem 1rem; margin: 1rem 0; }
.box h2 { border: 0; margin: 0 0 .3rem; padding: 0; }
.box.good { border-color: var(--good); background: var(--good-back); }
.box.care { border-color: var(--care); background: var(--care-back); }
.box.bad { border-color: var(--bad); background: var(--bad-back); }
.good .head { color: var(--good); } .care .head { color: var(--care); } .bad .head { color: var(--bad); }
.head { font-weight: 650; }
.marks, .advice { list-style: none; padding: 0; margin: .5rem 0 0; max-width: 56rem; }
.marks li { padding-left: 1.6rem; text-indent: -1.6rem; margin: .3rem 0; }
.mark { display: inline-block; width: 1.6rem; text-indent: 0; font-weight: 700; }
.advice li { border-left: 4px solid var(--care); padding: .1rem 0 .1rem .8rem; margin: .8rem 0; }
.advice li.bad { border-color: var(--bad); }
.advice .what { font-weight: 600; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem .28rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
tbody th { color: inherit; font-weight: 500; max-width: 20rem; white-space: normal; min-width: 8rem; }
td.off { color: var(--bad); font-weight: 700; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--link); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem;
  align-items: start; }
figure { margin: .6rem 0; }
.plate { background: #ffffff; border: 1px solid var(--line); border-radius: 6px; padding: .6rem;
  overflow-x: auto; width: fit-content; max-width: 100%; }
.plate img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { color: var(--soft); font-size: .88rem; margin-top: .35rem; }
.bar { display: flex; height: 1.5rem; border-radius: 4px; overflow: hidden; background: var(--panel); margin: .7rem 0; }
.bar span { min-width: 2px; border-right: 2px solid var(--page); } .bar span:last-child { border: 0; }
.swatch { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .5rem; }
dl { display: grid; grid-template-columns: minmax(7rem, auto) 1fr; gap: .25rem 1rem; margin: .6rem 0;
  max-width: 60rem; }
dt { color: var(--soft); } dd { margin: 0; }
.cite li { margin: .35rem 0; max-width: 56rem; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .6rem; }
@media (max-width: 30rem) {
  main { padding: 1rem .75rem 3rem; } h1 { font-size: 1.4rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } .plate { padding: .2rem; }
}
@media print { .plate, .box { break-inside: avoid; } body { font-size: 12px; } }
"""
