// Search without a server: a browser does not start a Worker from file://, so an iframe takes its place there.
// The script runs in the iframe's window, which gets messages as events and whose `postMessage` answers the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html><title>search</title>"
      frame.onload = () => {
        const inside = frame.contentWindow
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data })
          this.dispatchEvent(event)
          this.onmessage?.(event)
        }
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = () => {
          this.send = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }))
          this.waiting.forEach(this.send)
        }
        inside.document.body.append(script)
        frame.onload = null
      }
      document.documentElement.append(frame)
      this.frame = frame
    }

    postMessage(data) {
      if (this.send) this.send(data)
      else this.waiting.push(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
